/** The stages of a request, as one line. */
import type { JSX } from 'preact';
import type { DeliveryView } from '../../console/delivery-schemas.ts';
import { toWords } from '../format.ts';

type StageView = DeliveryView['stages'][number];

/** The line: what each stage found, and why one stopped the request. */
export function Stages({ stages, delivery }: Pick<DeliveryView, 'stages' | 'delivery'>): JSX.Element {
  return (
    <ol class="stages">
      {stages.map(({ name, result, detail }) => (
        <li key={name} class={result}>
          <StageName name={name} delivery={delivery} />
          <span class="hidden">, {toWords(result)}</span>
          {/* The route has a column. */}
          {detail !== null && !(name === 'route' && result === 'passed') && <small> {toDetail(result, detail)}</small>}
        </li>
      ))}
    </ol>
  );
}

/** A queued request links to its delivery to the app. */
export function StageName({ name, delivery }: { readonly name: string } & Pick<DeliveryView, 'delivery'>): JSX.Element {
  if (name !== 'queued' || delivery === null) return <>{name}</>;
  return <a href={`/?view=outgoing&delivery=${encodeURIComponent(delivery)}`}>{name}</a>;
}

/** The reason in words; names of keys and users stay as they are. */
export function toDetail(result: StageView['result'], detail: string): string {
  return result === 'stopped' || result === 'answered' ? toWords(detail) : detail;
}

/** How a request ended, by text, color and sign. */
export function Outcome({ outcome }: Pick<DeliveryView, 'outcome'>): JSX.Element {
  return <span class={`outcome ${outcome}`}>{outcome}</span>;
}
