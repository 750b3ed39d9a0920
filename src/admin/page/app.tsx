/** The frame of the console: navigation, the current view, and who is logged in. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { PageData } from '../console/page.ts';
import { ActionProvider } from './action.tsx';
import { logOut, type Session } from './api.ts';
import { DeliveriesView } from './deliveries/deliveries-view.tsx';
import { isLocal, setLocal } from './format.ts';
import { type PageLocation, recallPlace, rememberPlace, toOpener, usePlace } from './location.ts';
import { LoginsView } from './logins-view.tsx';
import { EventsView } from './outgoing/events.tsx';
import { OutgoingView } from './outgoing/outgoing-view.tsx';
import { OverviewView } from './overview/overview-view.tsx';

const VIEWS = {
  deliveries: 'Deliveries',
  overview: 'Overview',
  outgoing: 'Outgoing',
  events: 'Events',
  logins: 'Logins',
} as const;
type View = keyof typeof VIEWS;
/** `events` is reached from Outgoing. */
const MAIN_VIEWS = (Object.keys(VIEWS) as View[]).filter((name) => name !== 'events');

interface AppProps {
  readonly session: Session;
  /** The query of the address, and what the gate has read for it; undefined in a browser, which reads from the API. */
  readonly search?: string;
  readonly given?: PageData;
}

/** The whole page. */
export function App({ session, search, given }: AppProps): JSX.Element {
  const place = usePlace(search);
  const view = toView(place.query.get('view'));
  const main = useRef<HTMLElement>(null);
  const [isLocalTime, setIsLocalTime] = useState(isLocal);
  const toggleZone = (): void => {
    setLocal(!isLocalTime);
    setIsLocalTime(!isLocalTime);
  };
  useReturn(place);
  useEffect(() => {
    document.title = `${VIEWS[view]} · sidegate`;
  }, [view]);
  const open = (next: View): void => {
    place.go({ ...Object.fromEntries([...place.query.keys()].map((name) => [name, null])), view: next });
    main.current?.focus();
  };
  return (
    <>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <header class="top">
        <a class="brand" href="/">
          sidegate
        </a>
        <nav aria-label="Views">
          {MAIN_VIEWS.map((name) => (
            <a
              key={name}
              href={`/?view=${name}`}
              aria-current={name === view ? 'page' : name === 'outgoing' && view === 'events' ? 'true' : undefined}
              onClick={toOpener(() => open(name))}
            >
              {VIEWS[name]}
            </a>
          ))}
        </nav>
        <button type="button" class="zone" aria-pressed={isLocalTime} onClick={toggleZone}>
          Local time
        </button>
        <User session={session} />
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {/* Another zone renders all times again. */}
        <ActionProvider key={String(isLocalTime)} session={session}>
          {given !== undefined && <WithoutJavaScript view={view} />}
          {view === 'deliveries' && <DeliveriesView place={place} given={given} />}
          {view === 'events' && <EventsView place={place} given={given} />}
          {given === undefined && view === 'overview' && <OverviewView place={place} />}
          {given === undefined && view === 'outgoing' && <OutgoingView place={place} session={session} />}
          {given === undefined && view === 'logins' && <LoginsView />}
        </ActionProvider>
      </main>
      <footer>
        sidegate {session.version} on {session.replica}
      </footer>
    </>
  );
}

/** What the page cannot do without JavaScript. */
function WithoutJavaScript({ view }: { readonly view: View }): JSX.Element {
  return (
    <noscript>
      <p class="notice">
        {view === 'deliveries' || view === 'events'
          ? 'Without JavaScript, this page does not update itself: reload it.'
          : 'This view needs JavaScript.'}{' '}
        The <a href="/api/v1/openapi.json">API</a> has all that the other views show; the <a href="/">list of requests</a> and the{' '}
        <a href="/?view=events">list of events</a> need no JavaScript.
      </p>
    </noscript>
  );
}

function User({ session: { canLogIn, user } }: { readonly session: Session }): JSX.Element {
  if (user !== undefined)
    return (
      <span class="user">
        Logged in as {user}{' '}
        <button type="button" onClick={logOut}>
          Log out
        </button>
      </span>
    );
  if (!canLogIn) return <span class="user">Read-only</span>;
  return (
    <a class="user" href="/login" onClick={rememberPlace}>
      Log in
    </a>
  );
}

/** After the login, the gate sends the browser to `/`. */
function useReturn({ go }: PageLocation): void {
  useEffect(() => {
    const search = recallPlace();
    if (search === null || location.search !== '') return;
    const query = new URLSearchParams(search);
    go(Object.fromEntries([...new Set(query.keys())].map((name) => [name, query.getAll(name)])));
  }, []);
}

function toView(name: string | null): View {
  return name !== null && Object.hasOwn(VIEWS, name) ? (name as View) : 'deliveries';
}
