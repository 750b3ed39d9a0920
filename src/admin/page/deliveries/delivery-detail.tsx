/** One request in full, in a dialog; and the elements that the list of requests shows, too. */

import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { PageData } from '../../console/page.ts';
import type { BodyView, DeliveryDetail, DeliveryView } from '../../console/schemas.ts';
import { read, toMessage } from '../api.ts';
import { Copy, Dialog, Facts } from '../elements.tsx';
import { formatBytes, formatMs, toWords } from '../format.ts';

/** The analysis of a signature runs later, and may wait for others. */
const FINDING_DELAYS_MS = [1_000, 2_000, 4_000, 8_000] as const;
const REQUEST_ID = /^[0-9a-f-]{36}$/;
const ANALYZED: ReadonlySet<string | null> = new Set(['timestamp', 'signature']);

interface DeliveryDialogProps {
  readonly id: string;
  readonly given: PageData | undefined;
  readonly onClose: () => void;
}

/** Loads the request, unless the gate has read it, and shows it. */
export function DeliveryDialog({ id, given, onClose }: DeliveryDialogProps): JSX.Element {
  const [detail, setDetail] = useState(given?.detail);
  const [error, setError] = useState(given?.error);
  useEffect(() => {
    const abort = new AbortController();
    const load = async (attempt: number): Promise<void> => {
      try {
        const found = await readDetail(id, abort.signal);
        setDetail(found);
        const delay = found.findings.length === 0 && ANALYZED.has(found.stoppedBy) ? FINDING_DELAYS_MS[attempt] : undefined;
        if (delay !== undefined) setTimeout(() => abort.signal.aborted || void load(attempt + 1), delay);
      } catch (failure) {
        if (!abort.signal.aborted) setError(toMessage(failure));
      }
    };
    void load(0);
    return () => abort.abort();
  }, [id]);
  return (
    <Dialog title="Request" onClose={onClose}>
      {error !== undefined && <p class="notice bad">{error}</p>}
      {detail === undefined ? error === undefined && <p>Loading…</p> : <Detail detail={detail} />}
    </Dialog>
  );
}

/** The ID is from the address, so it could be the path of anything. */
async function readDetail(id: string, signal: AbortSignal): Promise<DeliveryDetail> {
  if (!REQUEST_ID.test(id))
    throw new Error('The address has no valid ID of a request. Close this dialog, and open one of the list.');
  return read<DeliveryDetail>(`/deliveries/${id}`, signal);
}

function Detail({ detail }: { readonly detail: DeliveryDetail }): JSX.Element {
  const { findings, commands, headers } = detail;
  return (
    <>
      <p>
        <Outcome outcome={detail.outcome} /> {detail.outcome === 'forwarded' ? '' : `${toWords(detail.reason)}, `}status{' '}
        {detail.status}
      </p>
      <StageList stages={detail.stages} delivery={detail.delivery} />
      {findings.length > 0 && (
        <section class="notice bad">
          <h3>Finding</h3>
          {findings.map((text) => (
            <p key={text}>{text}</p>
          ))}
        </section>
      )}
      <Facts facts={toFacts(detail)} />
      {commands.repeat !== null && (
        <Copy isCommand label="Repeat it (with the body from the file “body”)" text={commands.repeat} />
      )}
      {commands.explain === null ? (
        ANALYZED.has(detail.stoppedBy) && (
          <p class="hint">
            To analyze such deliveries with <code>sidegate explain</code>, set <code>capture: failures</code> on the route.
          </p>
        )
      ) : (
        <Copy isCommand label="Explain it" text={commands.explain} />
      )}
      <h3>Headers</h3>
      <Facts facts={headers.map(({ name, value }) => [name, value ?? <i>hidden</i>])} />
      {detail.body !== null && <StoredBody body={detail.body} />}
    </>
  );
}

/** As text, whatever it contains. */
function StoredBody({ body: { text, note } }: { readonly body: BodyView }): JSX.Element {
  return (
    <section aria-label="Body">
      <h3>Body</h3>
      {text === null ? <p class="hint">{note}</p> : <Copy label={note ?? 'As it arrived'} text={text} />}
    </section>
  );
}

function StageList({ stages, delivery }: Pick<DeliveryDetail, 'stages' | 'delivery'>): JSX.Element {
  return (
    <ol class="stage-list">
      {stages.map(({ name, result, detail }) => (
        <li key={name} class={result}>
          <b>
            <StageName name={name} delivery={delivery} />
          </b>{' '}
          {toWords(result)}
          {detail !== null && <span class="detail">: {toDetail(result, detail)}</span>}
        </li>
      ))}
    </ol>
  );
}

function toFacts(detail: DeliveryDetail): [string, string | null][] {
  return [
    ['Arrived', detail.at],
    ['Problem', detail.detail],
    ['Would be rejected', detail.observed],
    ['Route', detail.route],
    ['Sent', `${detail.method} ${detail.path ?? ''}`],
    ['Client', detail.client],
    ['User', detail.user ?? detail.certificate],
    ['Event', detail.event],
    ['Type', detail.type],
    ['Key', detail.key],
    ['Duration', formatMs(detail.durationMs)],
    ['App', detail.appMs === null ? null : formatMs(detail.appMs)],
    ['Body', formatBytes(detail.bytesIn)],
    ['Response body', detail.bytesOut === null ? null : formatBytes(detail.bytesOut)],
    ['Duplicates', detail.isUnchecked ? 'not checked, as the store was down' : null],
    ['Replica', detail.replica],
    ['Request', detail.id],
    ['Trace', detail.traceId],
  ];
}

// How a request ended, and its stages as one line.

/** How a request ended, by text, color and sign. */
export function Outcome({ outcome }: Pick<DeliveryView, 'outcome'>): JSX.Element {
  return <span class={`outcome ${outcome}`}>{outcome}</span>;
}

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
function StageName({ name, delivery }: { readonly name: string } & Pick<DeliveryView, 'delivery'>): JSX.Element {
  if (name !== 'queued' || delivery === null) return <>{name}</>;
  return <a href={`/?${new URLSearchParams({ view: 'outgoing', delivery })}`}>{name}</a>;
}

/** The reason in words; names of keys and users stay as they are. */
function toDetail(result: StageView['result'], detail: string): string {
  return result === 'stopped' || result === 'answered' ? toWords(detail) : detail;
}
