/** The web console: serves its page, with what a browser without JavaScript shows, and its files. */

import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { createRequire } from 'node:module';
import * as z from 'zod';
import type { ApiResponse } from '../../http-api/operation.ts';
import type { OutgoingEvent } from '../../provider/api/schemas.ts';
import { readBasic } from '../../users/basic.ts';
import { type DeliveryParts, readDetail, readPage } from './delivery-operations.ts';
import { isCursor } from './recent-deliveries.ts';
import { type DeliveryDetail, type deliveryPage, deliveryQuery, requestId } from './schemas.ts';

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
const NOT_BUILT = 'The console is not built: run npm run build.';

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
    // A browser without JavaScript shows it after the user cancels its prompt for a password.
    return toHtml(reply.status, renderNotice('Logged out', 'This browser has forgotten the password.'), reply.headers);
  }

  async #respondWithFile(path: string): Promise<ApiResponse> {
    try {
      const file = await this.#files.find(path);
      if (file === undefined) return this.#toError(404, 'The console has no such file.');
      const { content, contentType } = file;
      const headers = { 'Content-Length': String(content.length) };
      return { status: 200, contentType, headers, stream: (response) => response.end(content) };
    } catch {
      return this.#toError(503, NOT_BUILT);
    }
  }

  async #respondWithPage(request: IncomingMessage, text: string): Promise<ApiResponse> {
    // The other views have parameters that only the page's code knows.
    const view = new URLSearchParams(text).get('view') ?? '';
    if (OTHER_VIEWS.has(view)) return this.#toPage(request, 200, text, {});
    if (view === 'events') return this.#respondWithEvents(request, text);
    const { deliveries } = this.#parts;
    const routes = this.#parts.routes().map(({ name }) => name);
    const query = parseQuery(text);
    if (typeof query === 'string')
      return this.#toPage(request, 422, text, {
        routes,
        error: `A filter cannot be used: ${query}. Clear the filters and set them again.`,
      });
    const { request: shown, view: _, ...filters } = query;
    if (shown === undefined) return this.#toPage(request, 200, text, { routes, deliveries: await readPage(deliveries, filters) });
    const detail = await readDetail(deliveries, shown, request);
    return detail === undefined
      ? this.#toPage(request, 404, text, { error: 'The journal has no such request, or no longer.' })
      : this.#toPage(request, 200, text, { detail });
  }

  async #respondWithEvents(request: IncomingMessage, text: string): Promise<ApiResponse> {
    const { view: _, ...filters } = toValues(text) as Record<string, string>;
    const { status, body } = await this.#parts.listEvents(request, new URLSearchParams(filters).toString());
    const data = status === 200 ? { events: body as EventPage } : { error: (body as { readonly detail: string }).detail };
    return this.#toPage(request, status, text, data);
  }

  /** Only after `authorize`: the name is that of the user whose password was right. `search`: the query of the address. */
  #toPage({ headers }: IncomingMessage, status: number, search: string, data: PageData): ApiResponse {
    const read = this.#parts.session.canLogIn ? readBasic(headers.authorization, { latin1: false }) : 'missing';
    const session = { ...this.#parts.session, user: typeof read === 'string' ? undefined : read.user };
    const render = findRenderer();
    return render === undefined
      ? this.#toError(503, NOT_BUILT)
      : toHtml(status, renderDocument(render(session, search, data), session));
  }

  #toDenied({ status, headers, body }: ApiResponse): ApiResponse {
    const { detail = '' } = body as { readonly detail?: string };
    // A link in another page leads here. Its own request could carry a wrong password, so only one from this page counts.
    return this.#toError(status, status === 401 && !this.#parts.session.canLogIn ? NO_USERS : detail, headers);
  }

  #toError(status: number, text: string, headers?: ApiResponse['headers']): ApiResponse {
    return toHtml(status, renderNotice('This did not work', text), headers);
  }
}

function toHtml(status: number, text: string, headers: ApiResponse['headers'] = {}): ApiResponse {
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

// The HTML of the console: complete without JavaScript. Its components are those of admin/page, which replaces it by a page that updates itself.

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

interface EventPage {
  readonly data: readonly OutgoingEvent[];
  readonly iterator: string | null;
}

/** The content of the page, in the shapes of the API. */
export interface PageData {
  /** The names of all routes. */
  readonly routes?: readonly string[];
  readonly deliveries?: z.output<typeof deliveryPage>;
  readonly detail?: DeliveryDetail;
  readonly events?: EventPage;
  /** Why there is nothing to show. */
  readonly error?: string;
}

/** Returns the HTML of the page, in which all texts are escaped. `search`: the query of the address. */
export type RenderPage = (session: PageSession, search: string, data: PageData) => string;

/** Loads the code of the page on the first request for it; undefined if it was not built. */
function findRenderer(): RenderPage | undefined {
  try {
    const load = createRequire(FOLDER);
    return (load('./console-render.cjs') as { readonly renderPage: RenderPage }).renderPage;
  } catch {
    return undefined;
  }
}

/** A whole page; `content`: HTML; `session`: undefined for a page that runs no code. */
function renderDocument(content: string, session?: PageSession): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>sidegate console</title>
<link rel="icon" href="/console/icon.svg">
<link rel="stylesheet" href="/console/page.css">
${session === undefined ? '' : '<script type="module" src="/console/page.js"></script>'}
</head>
<body>
<div id="app"${session === undefined ? '' : renderSession(session)}>
${content}
</div>
</body>
</html>
`;
}

function renderSession({ version, replica, canLogIn, hasOutgoing, user = '' }: PageSession): string {
  const values = { version, replica, 'can-log-in': canLogIn, 'has-outgoing': hasOutgoing, user };
  return Object.entries(values)
    .map(([name, value]) => ` data-${name}="${escapeText(String(value))}"`)
    .join('');
}

/** A page with a text, and a link that starts again. */
function renderNotice(title: string, text: string): string {
  return renderDocument(`<header class="top"><a class="brand" href="/">sidegate</a></header>
<main id="main"><h1>${title}</h1><p class="notice">${escapeText(text)}</p><p><a href="/">Open the console</a></p></main>`);
}

const ESCAPED: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ESCAPED[character] ?? '');
}
