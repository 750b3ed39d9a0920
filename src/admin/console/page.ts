/** The web console: serves its page, with the list of recent requests in it for browsers without JavaScript, and its files. */
import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import * as z from 'zod';
import type { ApiResponse } from '../../http-api/operation.ts';
import { readBasic } from '../../users/basic.ts';
import { type DeliveryParts, readDetail, readPage } from './delivery-operations.ts';
import {
  type EventList,
  type Html,
  type PageSession,
  renderDetail,
  renderError,
  renderEvents,
  renderList,
  renderLoggedOut,
  renderOtherView,
  renderPage,
} from './page-html.ts';
import { isCursor } from './recent-deliveries.ts';
import { deliveryQuery, requestId } from './schemas.ts';

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
