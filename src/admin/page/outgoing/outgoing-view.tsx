/** The sending side: endpoints with their state, their backlog and their repair, deliveries, and the way to its events. */
import type { JSX } from 'preact';
import type { EndpointStats, EndpointView } from '../../../provider/api/schemas.ts';
import { type Action, ActionButton, ReadOnlyNotice } from '../action.tsx';
import { type Session, usePolled } from '../api.ts';
import { ColumnHeads, ErrorNotice } from '../elements.tsx';
import { formatTime, toWords } from '../format.ts';
import type { PageLocation } from '../location.ts';
import { act, count, describeAttempt, type EndpointRepair, repair, toEndpointPath } from './outgoing-api.ts';
import { OutgoingDeliveries } from './outgoing-deliveries.tsx';
import { usePages } from './use-pages.tsx';

/** The view. */
export function OutgoingView({ place, session }: { readonly place: PageLocation; readonly session: Session }): JSX.Element {
  return (
    <>
      <h1>Outgoing</h1>
      {session.hasOutgoing ? (
        <>
          <p>
            <a href="/?view=events">All accepted events</a>, also those that no endpoint selects
          </p>
          <ReadOnlyNotice />
          <Endpoints />
          <OutgoingDeliveries place={place} />
        </>
      ) : (
        <p class="empty">
          This gate sends no webhooks. To send some, add <code>provider</code> to the config.
        </p>
      )}
    </>
  );
}

const INTERVAL_MS = 5_000;
/** Each row asks for its backlog. */
const PAGE = 20;

/** The list of endpoints, in pages. */
function Endpoints(): JSX.Element {
  const { page, error, reload, controls } = usePages<EndpointView>(`/outgoing/endpoints?limit=${PAGE}`, 'endpoints');
  return (
    <section aria-labelledby="endpoints">
      <h2 id="endpoints">Endpoints</h2>
      <ErrorNotice error={error} />
      {page?.data.length === 0 && page.iterator === null && (
        <p class="empty">No endpoint exists. Add one to the config, or create one with the API of the sending side.</p>
      )}
      {page !== undefined && page.data.length > 0 && (
        <table class="list">
          <thead>
            <tr>
              <ColumnHeads names={['Endpoint', 'State', 'Waiting', 'Actions']} />
            </tr>
          </thead>
          <tbody>
            {page.data.map((endpoint) => (
              <Row key={endpoint.id} endpoint={endpoint} onChange={reload} />
            ))}
          </tbody>
        </table>
      )}
      {controls}
    </section>
  );
}

function Row({ endpoint, onChange }: { readonly endpoint: EndpointView; readonly onChange: () => void }): JSX.Element {
  const { id, url, description, source, tenant, allTenants, disabled } = endpoint;
  const { data, reload } = usePolled<EndpointStats>(`${toEndpointPath(id)}/stats`, INTERVAL_MS);
  const onEnd = (): void => {
    onChange();
    reload();
  };
  return (
    <tr>
      <th scope="row">
        <a href={`/?view=outgoing&endpoint=${encodeURIComponent(id)}`}>{id}</a>
        <span class="aside url">{source === 'inbox' ? description : url}</span>
        {tenant !== undefined && <span class="aside">tenant {tenant}</span>}
        {allTenants && <span class="aside">all tenants</span>}
      </th>
      <td>
        <State disabled={disabled} failing={data?.failing} />
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

/** A failing endpoint still gets attempts; a disabled one shows the failures that led to it. */
function State({
  disabled,
  failing,
}: {
  readonly disabled: EndpointView['disabled'];
  readonly failing: EndpointStats['failing'];
}): JSX.Element {
  const [kind, name] =
    disabled !== undefined ? ['rejected', 'disabled'] : failing === undefined ? ['forwarded', 'enabled'] : ['failed', 'failing'];
  return (
    <>
      <span class={`outcome ${kind}`}>{name}</span>{' '}
      {disabled !== undefined && (
        <span class="aside">
          {toWords(disabled.reason)}, {formatTime(disabled.at)}
        </span>
      )}
      {failing !== undefined && (
        <span class="aside">
          {failing.failures === 1 ? '1 failure' : `${failing.failures.toLocaleString('en')} failures in a row`} since{' '}
          {formatTime(failing.since)}
          {failing.lastAttempt !== undefined && `, last: ${describeAttempt(failing.lastAttempt)}`}
          {failing.pausedUntil !== undefined && `, paused until ${formatTime(failing.pausedUntil)}`}
        </span>
      )}
    </>
  );
}

function toActions({ id, source, disabled }: EndpointView): Action[] {
  const path = toEndpointPath(id);
  const post = (label: string, name: string, question: string, text: string): Action => ({
    label,
    question,
    run: async (_, signal) => {
      await act(`${path}/${name}`, signal);
      return { text };
    },
  });
  const toRepair = (label: string, action: EndpointRepair['action'], question: string, done: string): Action => ({
    label,
    question,
    count: async (signal) => `${toCount(await count({ action, endpoint: id }, signal))} concerned.`,
    run: async (onProgress, signal) => {
      const changed = await repair({ action, endpoint: id }, onProgress, signal);
      return { text: `${toCount(changed)} ${done}.` };
    },
  });
  if (disabled !== undefined)
    return [
      post('Enable', 'enable', 'New deliveries are sent to it again. Those that were skipped can be retried.', 'It is enabled.'),
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
  const repairs = [
    toRepair('Retry all', 'retry', 'All its dead and skipped deliveries are sent again.', 'due now'),
    toRepair('Cancel all', 'cancel', 'Its waiting deliveries are not sent, unless they are retried.', 'canceled'),
  ];
  // The app of a route is never given up.
  if (source === 'inbox') return repairs;
  return [
    ...repairs,
    post('Test', 'test', 'It gets a test event.', 'The test event is queued.'),
    ...(source === 'api' ? [rotate] : []),
    post(
      'Disable',
      'disable',
      'Its waiting deliveries are canceled, and new ones are skipped until it is enabled again. All of them can be retried then.',
      'It is disabled.',
    ),
  ];
}

function toCount(deliveries: number): string {
  return deliveries === 1 ? '1 delivery is' : `${deliveries.toLocaleString('en')} deliveries are`;
}
