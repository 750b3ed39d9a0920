/** The web console: serves its page, with the list of recent requests in it for browsers without JavaScript, and its files. */

import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import * as z from 'zod';
import type { ApiResponse } from '../../http-api/operation.ts';
import type { OutgoingEvent } from '../../provider/api/schemas.ts';
import { readBasic } from '../../users/basic.ts';
import { type DeliveryParts, readDetail, readPage } from './delivery-operations.ts';
import { isCursor } from './recent-deliveries.ts';
import { type DeliveryDetail, type DeliveryView, deliveryQuery, requestId } from './schemas.ts';
import { OUTCOMES, type Stage } from './stages.ts';

/** Only files of this origin; nothing inline, no other origin and no frame. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');
const HTML_TYPE = 'text/html; charset=utf-8';
const PATH = /^\/(?:login|logout|console\/.*)?$/;
/** As `<input type="datetime-local">` writes it. */
const LOCAL_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?$/;
const WITHOUT_SECONDS = 16;
const MAX_PROBLEM = 200;
/** A browser sends no bearer token by itself. */
const NO_USERS =
  'A browser cannot send admin.token. Set admin.basic, too, so that users can log in; until then, use sidegate requests list --token-file FILE.';

const OTHER_VIEWS: ReadonlySet<string> = new Set(['overview', 'outgoing', 'logins']);
const pageQuery = deliveryQuery.extend({
  request: requestId.optional(),
  view: z.literal('deliveries').optional(),
});

/** Whether the page responds to this path, not the API. */
export function isOfPage(path: string): boolean {
  return PATH.test(path);
}

/** The page of one gate. */
export class ConsolePage {
  readonly #parts;
  readonly #files = new PageFiles();

  constructor(parts: {
    /** Returns the response that rejects the request; undefined if it is authorized. */
    readonly authorize: (request: IncomingMessage, isAction: boolean) => Promise<ApiResponse | undefined>;
    /** Returns the response that makes a browser forget its password. */
    readonly logOut: (request: IncomingMessage) => ApiResponse;
    readonly deliveries: DeliveryParts;
    /** The operation of the sending side; a problem if there is none. */
    readonly listEvents: (request: IncomingMessage, query: string) => Promise<ApiResponse>;
    readonly routes: () => readonly { readonly name: string }[];
    readonly session: Omit<PageSession, 'user'>;
  }) {
    this.#parts = parts;
  }

  async respond(request: IncomingMessage): Promise<ApiResponse> {
    const [path = '', ...query] = (request.url ?? '').split('?');
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return this.#toError(405, 'The console only accepts GET requests.', { Allow: 'GET, HEAD' });
    if (path.startsWith('/console/')) return this.#respondWithFile(path);
    if (path === '/logout') return this.#logOut(request);
    const denial = await this.#parts.authorize(request, path === '/login');
    if (denial !== undefined) return this.#toDenied(denial);
    // The browser sends the password with all later requests, also to the API.
    if (path === '/login') return { status: 303, headers: { Location: '/' } };
    return this.#respondWithPage(request, query.join('?'));
  }

  #logOut(request: IncomingMessage): ApiResponse {
    const reply = this.#parts.logOut(request);
    if (reply.status !== 401) return this.#toDenied(reply);
    return toHtml(reply.status, renderPage(undefined, renderLoggedOut()), reply.headers);
  }

  async #respondWithFile(path: string): Promise<ApiResponse> {
    try {
      const file = await this.#files.find(path);
      if (file === undefined) return this.#toError(404, 'The console has no such file.');
      const { content, contentType } = file;
      const headers = { 'Content-Length': String(content.length) };
      return { status: 200, contentType, headers, stream: (response) => response.end(content) };
    } catch {
      return this.#toError(503, 'The console is not built: run npm run build.');
    }
  }

  async #respondWithPage(request: IncomingMessage, text: string): Promise<ApiResponse> {
    // The other views have parameters that only the page's code knows.
    const view = new URLSearchParams(text).get('view') ?? '';
    if (OTHER_VIEWS.has(view)) return this.#toPage(request, 200, renderOtherView());
    if (view === 'events') return this.#respondWithEvents(request, text);
    const query = parseQuery(text);
    if (typeof query === 'string')
      return this.#toPage(request, 422, renderError(`A filter cannot be used: ${query}. Clear the filters and set them again.`));
    const { deliveries, routes } = this.#parts;
    const { request: shown, view: _, ...filters } = query;
    if (shown === undefined) {
      const { data: rows, cursor } = await readPage(deliveries, filters);
      const list = { rows, cursor, filters: new URLSearchParams(text), routes: routes().map(({ name }) => name) };
      return this.#toPage(request, 200, renderList(list));
    }
    const detail = await readDetail(deliveries, shown, request);
    return detail === undefined
      ? this.#toPage(request, 404, renderError('The journal has no such request, or no longer.'))
      : this.#toPage(request, 200, renderDetail(detail));
  }

  async #respondWithEvents(request: IncomingMessage, text: string): Promise<ApiResponse> {
    const { view: _, ...filters } = toValues(text) as Record<string, string>;
    const { status, body } = await this.#parts.listEvents(request, new URLSearchParams(filters).toString());
    if (status !== 200) return this.#toPage(request, status, renderError((body as { readonly detail: string }).detail));
    return this.#toPage(
      request,
      status,
      renderEvents({ ...(body as Omit<EventList, 'filters'>), filters: new URLSearchParams(text) }),
    );
  }

  /** Only after `authorize`: the name is that of the user whose password was right. */
  #toPage({ headers }: IncomingMessage, status: number, content: Html): ApiResponse {
    const { session } = this.#parts;
    const read = session.canLogIn ? readBasic(headers.authorization, { latin1: false }) : 'missing';
    return toHtml(status, renderPage({ ...session, user: typeof read === 'string' ? undefined : read.user }, content));
  }

  #toDenied({ status, headers, body }: ApiResponse): ApiResponse {
    const { detail = '' } = body as { readonly detail?: string };
    // A link in another page leads here. Its own request could carry a wrong password, so only one from this page counts.
    return this.#toError(status, status === 401 && !this.#parts.session.canLogIn ? NO_USERS : detail, headers);
  }

  #toError(status: number, text: string, headers?: ApiResponse['headers']): ApiResponse {
    return toHtml(status, renderPage(undefined, renderError(text)), headers);
  }
}

function toHtml(status: number, { text }: Html, headers: ApiResponse['headers'] = {}): ApiResponse {
  const content = Buffer.from(text);
  return {
    status,
    contentType: HTML_TYPE,
    headers: {
      ...headers,
      'Content-Security-Policy': POLICY,
      'Cross-Origin-Opener-Policy': 'same-origin',
      'Content-Length': String(content.length),
    },
    stream: (response) => response.end(content),
  };
}

/** A form sends local times; the page asks for UTC. */
function toUtc(text: string): string {
  if (!LOCAL_TIME.test(text)) return text;
  return `${text}${text.length === WITHOUT_SECONDS ? ':00' : ''}Z`;
}

/** A form sends the fields that its user left empty, too. */
function toValues(text: string): Record<string, unknown> {
  const given = new URLSearchParams(text);
  const values: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const [name, value] of given) {
    if (value === '') continue;
    values[name] = name === 'from' || name === 'to' ? toUtc(value) : value;
  }
  const outcomes = given.getAll('outcome').filter((value) => value !== '');
  if (outcomes.length > 0) values['outcome'] = outcomes;
  return values;
}

/** Returns the problem as a text. */
function parseQuery(text: string): z.output<typeof pageQuery> | string {
  const result = pageQuery.safeParse(toValues(text));
  if (!result.success) {
    const [issue] = result.error.issues;
    return [...(issue?.path ?? []), issue?.message].join(': ').slice(0, MAX_PROBLEM);
  }
  const { cursor } = result.data;
  return cursor !== undefined && !isCursor(cursor) ? 'cursor: not the cursor of a page' : result.data;
}

// The files that the page loads.

/** A file that the page loads. */
interface PageFile {
  readonly contentType: string;
  readonly content: Buffer;
}

/** In the source tree, the build's folder has them. */
const FOLDER = new URL(import.meta.url.endsWith('.ts') ? '../../../dist/' : './', import.meta.url);
const BUILT: Readonly<Record<string, readonly [file: string, contentType: string]>> = {
  '/console/page.js': ['console-page.js', 'text/javascript; charset=utf-8'],
  '/console/page.css': ['console-page.css', 'text/css; charset=utf-8'],
};
/** A gate: two posts and a bar. */
const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b5cad"/><path d="M8 25V9m16 16V9M4 15h24" stroke="#fff" stroke-width="4" stroke-linecap="round"/></svg>\n';

/** Reads a file once; undefined if the page has no such file. Rejects if it was not built. */
class PageFiles {
  readonly #files = new Map<string, PageFile>([
    ['/console/icon.svg', { contentType: 'image/svg+xml', content: Buffer.from(ICON) }],
  ]);

  async find(path: string): Promise<PageFile | undefined> {
    const known = this.#files.get(path);
    if (known !== undefined) return known;
    const [name, contentType] = Object.hasOwn(BUILT, path) ? (BUILT[path] ?? []) : [];
    if (name === undefined || contentType === undefined) return undefined;
    const file = { contentType, content: await readFile(new URL(name, FOLDER)) };
    this.#files.set(path, file);
    return file;
  }
}

// The HTML of the console: complete without JavaScript; with it, admin/page replaces the list by one that updates itself.

/** The state of the gate and its user that the page starts with. */
export interface PageSession {
  readonly version: string;
  readonly replica: string;
  /** The config has users: they can log in to act. */
  readonly canLogIn: boolean;
  /** The config has a sending side. */
  readonly hasOutgoing: boolean;
  /** The user who is logged in. */
  readonly user: string | undefined;
}

/** A page of the list. */
interface PageList {
  readonly rows: readonly DeliveryView[];
  readonly cursor: string | null;
  /** As they were sent. */
  readonly filters: URLSearchParams;
  readonly routes: readonly string[];
}

/** A page of events. */
interface EventList extends Pick<PageList, 'filters'> {
  readonly data: readonly OutgoingEvent[];
  readonly iterator: string | null;
}

const UNMATCHED = '_unmatched';
/** As in admin/page/deliveries/deliveries-view.tsx. */
const TEXT_FILTERS = { reason: 'Reason', status: 'Status (4xx)', client: 'Client', type: 'Event type', id: 'ID' } as const;

/** A whole page; `session`: undefined for an error page, which runs no code. */
function renderPage(session: PageSession | undefined, content: Html): Html {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>sidegate console</title>
<link rel="icon" href="/console/icon.svg">
<link rel="stylesheet" href="/console/page.css">
${session && html`<script type="module" src="/console/page.js"></script>`}
</head>
<body>
<div id="app"${session && toData(session)}>
<header class="top"><a class="brand" href="/">sidegate</a></header>
<main id="main">${content}</main>
</div>
</body>
</html>
`;
}

function toData({ version, replica, canLogIn, hasOutgoing, user }: PageSession): Html {
  return html` data-version="${version}" data-replica="${replica}" data-can-log-in="${String(canLogIn)}" data-has-outgoing="${String(hasOutgoing)}" data-user="${user}"`;
}

/** A problem, and a link that starts again. */
function renderError(text: string): Html {
  return html`<h1>This did not work</h1><p class="notice bad">${text}</p><p><a href="/">Open the console</a></p>`;
}

/** A browser without JavaScript shows it after the user cancels its prompt for a password. */
function renderLoggedOut(): Html {
  return html`<h1>Logged out</h1><p>This browser has forgotten the password.</p><p><a href="/">Open the console</a></p>`;
}

/** A view that only the page's code can show. */
function renderOtherView(): Html {
  return html`<noscript><p class="notice">This view needs JavaScript. The <a href="/api/v1/openapi.json">API</a> has the same figures; the <a href="/">list of requests</a> and the <a href="/?view=events">list of events</a> need no JavaScript.</p></noscript>`;
}

/** The list with its filters. */
function renderList(list: PageList): Html {
  const { rows, cursor, filters } = list;
  return html`<h1>Deliveries</h1>
<noscript><p class="notice">Without JavaScript, this list does not update itself: reload the page. All other views are in the <a href="/api/v1/openapi.json">API</a>.</p></noscript>
${renderFilters(list)}
${rows.length === 0 ? html`<p class="empty">No request matches. Send one, or clear the filters.</p>` : renderTable(rows)}
${cursor === null ? undefined : html`<p><a href="/?${toSearch(filters, { cursor })}">Older requests</a></p>`}`;
}

/** The events of the sending side with their filters. */
function renderEvents({ data, iterator, filters }: EventList): Html {
  const input = (name: string, label: string, type = 'text'): Html =>
    html`<label>${label} <input type="${type}" name="${name}" value="${filters.get(name)}"></label>`;
  return html`<h1>Events</h1>
<form class="filters" action="/" method="get" aria-label="Filters">
<input type="hidden" name="view" value="events">
${input('type', 'Type')}
${input('tenant', 'Tenant')}
${input('from', 'From (UTC)', 'datetime-local')}
${input('to', 'To (UTC)', 'datetime-local')}
<label class="choice"><input type="checkbox" name="unrouted" value="true"${filters.get('unrouted') === 'true' ? html` checked` : undefined}> Only without an endpoint</label>
<button>Filter</button> <a href="/?view=events">Clear</a>
</form>
${data.length === 0 ? html`<p class="empty">No event matches${iterator === null ? '.' : ' on this page.'}</p>` : renderEventTable(data)}
${iterator === null ? undefined : html`<p><a href="/?${toSearch(filters, { iterator })}">Older events</a></p>`}`;
}

function renderEventTable(events: readonly OutgoingEvent[]): Html {
  return html`<table class="list"><caption class="hidden">Accepted events, newest first</caption>
<thead><tr><th scope="col">Event</th><th scope="col">Tenant</th><th scope="col">Accepted (UTC)</th><th scope="col">Endpoints</th><th scope="col">Delivered</th><th scope="col">Waiting</th><th scope="col">Failed</th></tr></thead>
<tbody>${events.map(
    ({ id, type, tenant, createdAt, deliveries, waiting, failed }) => html`<tr>
<th scope="row"><span class="id">${id}</span> <span class="aside url">${type}</span></th><td>${tenant}</td><td>${createdAt.slice(0, -1).replace('T', ' ')}</td>
<td class="number">${deliveries === 0 ? 'none' : deliveries}</td><td class="number">${deliveries - waiting - failed}</td><td class="number">${waiting}</td><td class="number">${failed}</td></tr>
`,
  )}</tbody></table>`;
}

function toSearch(filters: URLSearchParams, position: Readonly<Record<string, string>>): string {
  const search = new URLSearchParams(filters);
  for (const [name, value] of Object.entries(position)) search.set(name, value);
  return search.toString();
}

function renderFilters({ filters, routes }: PageList): Html {
  const [route = '', outcome = '', last = ''] = ['route', 'outcome', 'last'].map((name) => filters.get(name) ?? '');
  // The journal may have requests of a route that the config no longer has.
  const known = [...new Set([...routes, ...[route].filter((name) => name !== '' && name !== UNMATCHED)])];
  const toOption = (value: string, label: string, current: string): Html =>
    html`<option value="${value}"${value === current ? html` selected` : undefined}>${label}</option>`;
  return html`<form class="filters" action="/" method="get" aria-label="Filters">
<label>Route <select name="route">${[toOption('', 'all', route), ...known.map((name) => toOption(name, name, route)), toOption(UNMATCHED, 'no route', route)]}</select></label>
<label>Outcome <select name="outcome">${[toOption('', 'all', outcome), ...OUTCOMES.map((name) => toOption(name, name, outcome))]}</select></label>
<label>Time <select name="last">${[toOption('', 'all', last), toOption('15m', 'last 15 minutes', last), toOption('1h', 'last hour', last)]}</select></label>
${Object.entries(TEXT_FILTERS).map(
  ([
    name,
    label,
  ]) => html`<label>${label} <input name="${name}" class="${name}" maxlength="1024" value="${filters.get(name)}"></label>
`,
)}<label>From (UTC) <input type="datetime-local" name="from" value="${filters.get('from')}"></label>
<label>To (UTC) <input type="datetime-local" name="to" value="${filters.get('to')}"></label>
<button>Filter</button> <a href="/">Clear</a>
</form>`;
}

function renderTable(rows: readonly DeliveryView[]): Html {
  return html`<table class="deliveries"><caption class="hidden">Recent requests, newest first</caption>
<thead><tr><th scope="col">Time (UTC)</th><th scope="col">Outcome</th><th scope="col">Route</th><th scope="col">Stages</th><th scope="col">Status</th><th scope="col">Event</th></tr></thead>
<tbody>${rows.map(renderRow)}</tbody></table>`;
}

function renderRow({ id, at, outcome, route, path, stages, status, event, method }: DeliveryView): Html {
  return html`<tr class="${outcome}">
<td><a href="/?request=${id}">${at.slice(0, -1).replace('T', ' ')}</a></td><td><span class="outcome ${outcome}">${outcome}</span></td>
<td>${route ?? `${method} ${path ?? ''}`}</td><td>${renderStages(stages)}</td><td>${status}</td><td class="id">${event}</td></tr>
`;
}

function renderStages(stages: readonly Stage[]): Html {
  return html`<ol class="stages">${stages.map(({ name, result, detail }) => {
    const shown = name === 'route' && result === 'passed' ? null : detail;
    // Names of keys and users stay as they are.
    const text = shown !== null && (result === 'stopped' || result === 'answered') ? toWords(shown) : shown;
    return html`<li class="${result}">${name}<span class="hidden">, ${toWords(result)}</span>${text && html` <small>${text}</small>`}</li>`;
  })}</ol>`;
}

function toWords(code: string): string {
  return code.replaceAll('_', ' ');
}

/** One request. */
function renderDetail(detail: DeliveryDetail): Html {
  const { id, at, outcome, code, reason, stages, method, path, client, status, durationMs, appMs, findings, headers, commands } =
    detail;
  const facts: [string, string | number | null][] = [
    ['Request', id],
    ['Event', detail.event],
    ['Type', detail.type],
    ['Queued as', detail.delivery],
    ['Arrived', at],
    ['Outcome', `${outcome}: ${toWords(reason)} (${code})`],
    ['Problem', detail.detail],
    ['Sent', `${method} ${path ?? ''}`],
    ['Client', client],
    ['Status', status],
    ['Duration', `${durationMs.toFixed(1)} ms`],
    ['App', appMs === null ? null : `${appMs.toFixed(1)} ms`],
    ['Body', `${detail.bytesIn} bytes`],
    ['Stored body', detail.body?.note ?? null],
    ['Repeat', commands.repeat],
    ['Explain', commands.explain],
  ];
  return html`<h1>Request</h1><p><a href="/">All requests</a></p>
${renderStages(stages)}
<dl class="facts">${facts.flatMap(([name, value]) => (value === null ? [] : [html`<dt>${name}</dt><dd>${value}</dd>`]))}</dl>
${findings.length === 0 ? undefined : html`<h2>Finding</h2><ul>${findings.map((text) => html`<li>${text}</li>`)}</ul>`}
<h2>Headers</h2><dl class="facts">${headers.map(({ name, value }) => html`<dt>${name}</dt><dd>${value ?? 'hidden'}</dd>`)}</dl>
${typeof detail.body?.text === 'string' ? html`<h2>Body</h2><pre>${detail.body.text}</pre>` : undefined}`;
}

// HTML as a value: a text becomes part of a page only escaped.

/** Escaped HTML. Only `html` creates it. */
class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type HtmlValue = Html | string | number | null | undefined | readonly Html[];

const ESCAPED: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
const SPECIAL = /[&<>"']/g;

/** Escapes every interpolated text. Attributes must be written in double quotes. */
function html(strings: TemplateStringsArray, ...values: readonly HtmlValue[]): Html {
  return new Html(strings.reduce((text, part, index) => `${text}${toText(values[index - 1])}${part}`));
}

function toText(value: HtmlValue): string {
  if (value === null || value === undefined) return '';
  if (value instanceof Html) return value.text;
  if (typeof value === 'object') return value.map(({ text }) => text).join('');
  return String(value).replace(SPECIAL, (character) => ESCAPED[character] ?? '');
}
