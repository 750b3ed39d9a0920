/** The endpoints of the sending side: their state and backlog, and how to repair them. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { type Action, ActionButton } from '../action.tsx';
import { ColumnHeads } from '../column-heads.tsx';
import { formatTime, toWords } from '../format.ts';
import { ErrorNotice } from '../notices.tsx';
import { usePolled } from '../use-polled.ts';
import { act, type Endpoint, type EndpointStats, type ListPage, replayAll, toEndpointPath } from './outgoing-api.ts';

const INTERVAL_MS = 5_000;
/** Each row asks for its backlog. */
const PAGE = 20;

/** The list of endpoints, in pages. */
export function Endpoints(): JSX.Element {
  const [iterator, setIterator] = useState<string>();
  const after = iterator === undefined ? '' : `&iterator=${encodeURIComponent(iterator)}`;
  const { data, error, reload } = usePolled<ListPage<Endpoint>>(`/outgoing/endpoints?limit=${PAGE}${after}`, INTERVAL_MS);
  return (
    <section aria-labelledby="endpoints">
      <h2 id="endpoints">Endpoints</h2>
      <ErrorNotice error={error} />
      {data?.data.length === 0 && (
        <p class="empty">No endpoint exists. Add one to the config, or create one with the API of the sending side.</p>
      )}
      {data !== undefined && data.data.length > 0 && (
        <table class="list">
          <thead>
            <tr>
              <ColumnHeads names={['Endpoint', 'State', 'Waiting', 'Actions']} />
            </tr>
          </thead>
          <tbody>
            {data.data.map((endpoint) => (
              <Row key={endpoint.id} endpoint={endpoint} onChange={reload} />
            ))}
          </tbody>
        </table>
      )}
      {iterator !== undefined && (
        <button type="button" onClick={() => setIterator(undefined)}>
          First endpoints
        </button>
      )}{' '}
      {data !== undefined && data.iterator !== null && (
        <button type="button" onClick={() => setIterator(data.iterator ?? undefined)}>
          More endpoints
        </button>
      )}
    </section>
  );
}

interface RowProps {
  readonly endpoint: Endpoint;
  readonly onChange: () => void;
}

function Row({ endpoint, onChange }: RowProps): JSX.Element {
  const { id, url, disabled } = endpoint;
  const { data, reload } = usePolled<EndpointStats>(`${toEndpointPath(id)}/stats`, INTERVAL_MS);
  const onEnd = (): void => {
    onChange();
    reload();
  };
  return (
    <tr>
      <th scope="row">
        <a href={`/?view=outgoing&endpoint=${encodeURIComponent(id)}`}>{id}</a>
        <span class="aside url">{url}</span>
      </th>
      <td>
        {disabled === undefined ? (
          <span class="outcome forwarded">enabled</span>
        ) : (
          <>
            <span class="outcome rejected">disabled</span>{' '}
            <span class="aside">
              {toWords(disabled.reason)}, {formatTime(disabled.at)}
            </span>
          </>
        )}
      </td>
      <td class="number" data-label="Waiting">
        {data?.waiting.toLocaleString('en') ?? '–'}
        {data?.oldestDue !== undefined && <span class="aside"> overdue since {formatTime(data.oldestDue)}</span>}
      </td>
      <td class="actions">
        {toActions(endpoint).map((action) => (
          <ActionButton key={action.label} action={action} of={id} onEnd={onEnd} />
        ))}
      </td>
    </tr>
  );
}

function toActions({ id, source, disabled }: Endpoint): Action[] {
  const path = toEndpointPath(id);
  const post = (label: string, name: string, question: string, text: string): Action => ({
    label,
    question,
    run: async (_, signal) => {
      await act(`${path}/${name}`, signal);
      return { text };
    },
  });
  if (disabled !== undefined)
    return [
      post('Enable', 'enable', 'New deliveries are sent to it again. Those that were skipped can be replayed.', 'It is enabled.'),
    ];
  const rotate: Action = {
    label: 'Rotate secret',
    question:
      'It gets a new secret. Deliveries are signed with both until the grace period is over; give the new one to the receiver before.',
    run: async (_, signal) => {
      const { secret } = (await (await act(`${path}/rotate-secret`, signal)).json()) as { readonly secret: string };
      return { text: 'The secret is replaced.', secret };
    },
  };
  return [
    {
      label: 'Replay all',
      question: 'All its dead and skipped deliveries are sent again.',
      run: (onProgress, signal) => replayAll(id, onProgress, signal),
    },
    post('Test', 'test', 'It gets a test event.', 'The test event is queued.'),
    ...(source === 'api' ? [rotate] : []),
    post('Disable', 'disable', 'Its deliveries are skipped until it is enabled again.', 'It is disabled.'),
  ];
}
