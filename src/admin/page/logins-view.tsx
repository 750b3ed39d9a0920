/** Failed logins, and bans. */
import type { JSX } from 'preact';
import type { FailedLogins } from '../console/schemas.ts';
import { type Action, ActionButton, ReadOnlyNotice } from './action.tsx';
import { request, usePolled } from './api.ts';
import { ColumnHeads, ErrorNotice } from './elements.tsx';
import { formatTime } from './format.ts';

const INTERVAL_MS = 5_000;

/** The view. */
export function LoginsView(): JSX.Element {
  const { data, error, reload } = usePolled<{ readonly data: readonly FailedLogins[] }>('/logins', INTERVAL_MS);
  return (
    <>
      <h1>Logins</h1>
      <ReadOnlyNotice />
      <ErrorNotice error={error} />
      {data?.data.length === 0 && (
        <p class="empty">
          No recent login failed. Clients with wrong passwords appear here, on routes with <code>basic</code> and on the forward
          proxy.
        </p>
      )}
      {data !== undefined && data.data.length > 0 && (
        <table class="list">
          <caption class="hidden">Clients with failed logins</caption>
          <thead>
            <tr>
              <ColumnHeads names={['Client', 'Realm', 'Failed', 'Last', 'Ban', 'Actions']} />
            </tr>
          </thead>
          <tbody>
            {data.data.map((login) => (
              <tr key={`${login.realm}\n${login.client}`}>
                <th scope="row">{login.client}</th>
                <td data-label="Realm">
                  {login.realm} <span class="aside">{login.routes.join(', ')}</span>
                </td>
                <td class="number" data-label="Failed">
                  {login.failures}
                </td>
                <td class="time" data-label="Last">
                  {formatTime(login.lastAt)}
                </td>
                <td data-label="Ban">
                  {login.bannedForMs === null ? 'not banned' : <b>{Math.ceil(login.bannedForMs / 1_000)} s left</b>}
                </td>
                <td class="actions">
                  <ActionButton action={toRelease(login)} of={login.client} onEnd={reload} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function toRelease({ realm, client }: FailedLogins): Action {
  return {
    label: 'Release',
    question: `The failed logins of the network of ${client} in ${realm} are forgotten, and its ban ends.`,
    run: async (_, signal) => {
      const headers = { 'Content-Type': 'application/json' };
      await request('/logins/release', { method: 'POST', headers, body: JSON.stringify({ realm, client }), signal });
      return { text: 'It can log in again.' };
    },
  };
}
