/** Names and values. */
import type { JSX } from 'preact';

/** Values that are null are omitted. */
export function Facts({ facts }: { readonly facts: readonly (readonly [string, string | JSX.Element | null])[] }): JSX.Element {
  return (
    <dl class="facts">
      {facts.map(([name, value], index) =>
        value === null ? null : (
          <div key={`${name}${index}`}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ),
      )}
    </dl>
  );
}
