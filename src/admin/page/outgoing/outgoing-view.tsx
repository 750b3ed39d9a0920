/** The sending side: endpoints and deliveries, and the way to its events. */
import type { JSX } from 'preact';
import { ReadOnlyNotice } from '../action.tsx';
import type { PageLocation } from '../location.ts';
import type { Session } from '../session.ts';
import { Endpoints } from './endpoints.tsx';
import { OutgoingDeliveries } from './outgoing-deliveries.tsx';

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
