/** The console's JSON API (docs/console-api.md). The entry point of a separate bundle (scripts/bundle.ts), which is loaded on first use. */

import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RealmConfig } from '../../config/schema/config.ts';
import type { User } from '../../core/admitted.ts';
import { toInstant } from '../../core/clock.ts';
import { HeaderFields } from '../../core/head.ts';
import { toPlainAddress } from '../../core/ip-address.ts';
import type { Reason } from '../../core/refusal.ts';
import type { RequestBody } from '../../core/request.ts';
import { toAttemptKey } from '../../gateway/pipeline/gates/basic-auth.ts';
import type { PasswordGate } from '../../gateway/pipeline/gates/gate.ts';
import { isFromLoopback, isFromOtherSite, namesThisMachine } from '../../http/server/port-access.ts';
import { ApiRouter, handleOperation, validateQuery, writeResponse } from '../../http-api/api-router.ts';
import { createOpenapiOperation, type OpenapiOptions } from '../../http-api/openapi.ts';
import { type ApiResponse, defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import { toInvalid, toProblem, toRefusalProblem } from '../../http-api/problem.ts';
import type { ProblemCode } from '../../http-api/problem-catalogue.ts';
import type { ConsoleOperations } from '../../provider/api/provider-api.ts';
import { StoreUnavailable } from '../../state/seen-ids.ts';
import type { SharedStreams } from '../../state/shared-streams.ts';
import type { Journal, JournalEntry } from '../../telemetry/journal/journal.ts';
import type { Attempts } from '../../users/attempts.ts';
import type { AdminDenialLabel } from '../admin-metrics.ts';
import { type AdminAccess, DENIAL_TEXTS } from '../router.ts';
import { createDeliveryOperations, type DeliveryParts } from './delivery-operations.ts';
import { DeliveryStream } from './delivery-stream.ts';
import { createRedact, toDetailView, type ViewContext } from './delivery-view.ts';
import { createOverviewOperation, type OverviewParts, ReplicaFigures } from './overview.ts';
import { ConsolePage, isOfPage } from './page.ts';
import {
  type BodyDenial,
  delivery,
  deliveryDetail,
  deliveryPage,
  type FailedLogins,
  failedLoginList,
  overview,
  type Release,
  release,
  released,
  requestId,
} from './schemas.ts';
import { SharedEntries, type SharedEntriesParts } from './shared-entries.ts';

/** The dependencies of the console. */
export interface ConsoleParts extends ConsoleAccessParts, Omit<LoginParts, 'journal'>, OverviewParts, SharedEntriesParts {
  readonly journal: Journal;
  /** Operations of the sending side; undefined without one. */
  readonly outgoing: ConsoleOperations | undefined;
  /** Where this machine listens for requests; undefined if the system chose the port. */
  readonly address: () => string | undefined;
  /** Of the current config: no response contains them. */
  readonly secrets: () => readonly Buffer[];
  readonly isCaptured: (requestId: string) => boolean;
  /** A client of the stream was disconnected because it read too slowly. */
  readonly onStreamDropped: () => void;
  /** An operation threw, which is our bug. */
  readonly onError: (operation: string, error: unknown) => void;
}

const PARAMETERS = { request: requestId };
const OUTGOING_PREFIX = /^\/v1\//;
const OUTGOING_PATH = '/api/v1/outgoing/';

/** The API of one gate. */
export class Console {
  readonly #parts: ConsoleParts;
  readonly #access: ConsoleAccess;
  readonly #stream: DeliveryStream;
  readonly #shared: SharedEntries;
  readonly #figures: ReplicaFigures;
  readonly #deliveries: DeliveryParts;
  readonly #router: ApiRouter;
  readonly #page: ConsolePage;

  constructor(parts: ConsoleParts) {
    this.#parts = parts;
    this.#access = new ConsoleAccess(parts);
    const instance = randomBytes(4).toString('hex');
    this.#shared = new SharedEntries(instance, parts);
    this.#figures = new ReplicaFigures(instance, parts);
    this.#stream = new DeliveryStream({
      clock: parts.clock,
      journal: parts.journal,
      shared: parts.shared && this.#shared,
      instance,
      context: () => this.#toContext(),
      onDropped: parts.onStreamDropped,
    });
    this.#deliveries = this.#createDeliveryParts();
    this.#router = new ApiRouter(this.#createOperations(), { ...PARAMETERS, ...parts.outgoing?.parameters });
    this.#page = this.#createPage();
  }

  /** Responds to one request; never rejects. */
  async handle(request: IncomingMessage, response: ServerResponse, body: RequestBody): Promise<void> {
    const [path = ''] = (request.url ?? '').split('?');
    const reply = await (isOfPage(path) ? this.#page.respond(request) : this.#respond(request, body));
    // The rest of an unread body would be parsed as the next request.
    if (!request.complete) response.shouldKeepAlive = false;
    await writeResponse(reply, response, body);
  }

  /** Shows the recent requests and the figures to the consoles of other replicas. */
  async share(shared: SharedStreams): Promise<void> {
    const context = this.#toContext();
    // The capture and the body are in this process, which the other console does not reach.
    const reader = { isCaptured: false, origin: '', bodyDenial: 'other_replica' } as const;
    await this.#shared.share(shared, (entry) => toDetailView(entry, context, reader));
    await this.#figures.share(shared);
  }

  async #respond(request: IncomingMessage, body: RequestBody): Promise<ApiResponse> {
    const [path = '', ...query] = (request.url ?? '').split('?');
    const found = this.#router.find(request.method ?? '', path);
    const operation = typeof found === 'object' ? found.operation : undefined;
    // Before 404 and 405: only authorized clients learn what exists.
    const isAction = operation !== undefined && operation.method !== 'GET';
    const denial = operation?.isPublic === true ? undefined : await this.#access.authorize(request, isAction);
    if (denial !== undefined) return denial;
    if (found === undefined) return toProblem('not_found', this.#explainUnknown(path));
    if (typeof found === 'string')
      return toProblem('method_not_allowed', `allowed methods: ${found}`, { headers: { Allow: found } });
    return this.#explainThrown(found.operation, () => handleOperation(found, request, query.join('?'), body));
  }

  async #explainThrown({ id }: Operation, respond: () => Promise<ApiResponse>): Promise<ApiResponse> {
    try {
      return await respond();
    } catch (thrown) {
      const known = this.#parts.outgoing?.toThrownProblem(thrown);
      if (known !== undefined) return known;
      this.#parts.onError(id, thrown);
      // The error's text may contain anything, so it is not sent.
      return toProblem('internal', 'the request failed; see the log of sidegate');
    }
  }

  /** For the page, which has authorized the request. */
  async #listEvents(incoming: IncomingMessage, text: string): Promise<ApiResponse> {
    const operation = this.#parts.outgoing?.operations.find(({ id }) => id === 'listEvents');
    if (operation === undefined) return toProblem('not_found', this.#explainUnknown(OUTGOING_PATH));
    const query = validateQuery(operation, text);
    if (query.kind === 'invalid') return query.response;
    const { value } = query;
    return this.#explainThrown(operation, async () =>
      operation.handle({ params: {}, query: value, body: undefined, content: Buffer.alloc(0), incoming }),
    );
  }

  #explainUnknown(path: string): string {
    if (this.#parts.outgoing === undefined && path.startsWith(OUTGOING_PATH))
      return 'this gate sends no webhooks: its config has no provider section';
    return 'no operation has this path; see /api/v1/openapi.json';
  }

  #createOperations(): Operation[] {
    const { version, outgoing } = this.#parts;
    const operations = [
      ...createDeliveryOperations(this.#deliveries),
      createOverviewOperation(this.#parts, this.#figures),
      ...createLoginOperations(this.#parts),
      ...(outgoing?.operations.map(toOutgoing) ?? []),
    ];
    return [...operations, createOpenapiOperation(operations, toDocumentOptions(version, outgoing), '/api/v1/openapi.json')];
  }

  #createPage(): ConsolePage {
    const { routes, version, replica, password, outgoing } = this.#parts;
    return new ConsolePage({
      authorize: (request, isAction) => this.#access.authorize(request, isAction),
      logOut: (request) => this.#access.logOut(request),
      deliveries: this.#deliveries,
      listEvents: (request, query) => this.#listEvents(request, query),
      routes,
      session: {
        version,
        replica,
        canLogIn: password !== undefined,
        hasOutgoing: outgoing !== undefined,
      },
    });
  }

  #createDeliveryParts(): DeliveryParts {
    const { clock, journal, isCaptured } = this.#parts;
    return {
      clock,
      entries: () => journal.find({ limit: Math.max(1, journal.size) }),
      readShared: () => this.#shared.read(),
      context: () => this.#toContext(),
      isCaptured,
      findBodyDenial: (request) => this.#access.findBodyDenial(request),
      isAuthorized: (request) => this.#access.isAuthorized(request),
      stream: this.#stream,
    };
  }

  #toContext(): ViewContext {
    const { routes, address, replica } = this.#parts;
    const secrets = this.#parts.secrets();
    const byName = new Map(routes().map((route) => [route.name, route]));
    return { replica, redact: createRedact(secrets), secrets, findRoute: (name) => byName.get(name), address: address() };
  }
}

/** Next to the operations of what arrives. */
function toOutgoing(operation: Operation): Operation {
  return { ...operation, path: operation.path.replace(OUTGOING_PREFIX, OUTGOING_PATH) };
}

function toDocumentOptions(version: string, outgoing: ConsoleOperations | undefined): OpenapiOptions {
  return {
    info: {
      title: 'sidegate console API',
      version,
      summary: 'Shows the requests that arrived, and why each was rejected.',
    },
    servers: [{ url: 'http://127.0.0.1:9090', description: 'The default of admin.address.' }],
    securitySchemes: {
      bearer: {
        type: 'http',
        scheme: 'bearer',
        description: 'admin.token, to read. If it is not set, only requests from loopback are accepted.',
      },
      basic: { type: 'http', scheme: 'basic', description: 'A user of admin.basic, to read and to act.' },
    },
    parameters: { ...PARAMETERS, ...outgoing?.parameters },
    requests: { ...outgoing?.requests, Release: release },
    responses: {
      ...outgoing?.responses,
      RecentDelivery: delivery,
      RecentDeliveryDetail: deliveryDetail,
      RecentDeliveryPage: deliveryPage,
      Overview: overview,
      FailedLoginList: failedLoginList,
      Released: released,
    },
  };
}

// Authorizes requests for the console's API, and explains rejections as problem details. Without `admin.basic` it is read-only.

/** The dependencies of the rule. */
export interface ConsoleAccessParts {
  readonly access: Pick<AdminAccess, 'authorize'>;
  /** The users of `admin.basic`; `challenge`: for WWW-Authenticate. */
  readonly password: (PasswordGate & { readonly challenge: string }) | undefined;
  readonly onDenied: (reason: AdminDenialLabel) => void;
}

const BASIC = /^basic(?:[\t ]|$)/i;
const DENIALS: Readonly<Record<AdminDenialLabel, readonly [ProblemCode, string]>> = {
  not_loopback: ['forbidden', DENIAL_TEXTS.not_loopback],
  foreign_host: ['forbidden', DENIAL_TEXTS.foreign_host],
  cross_origin: ['forbidden', DENIAL_TEXTS.cross_origin],
  read_only: ['forbidden', 'the console is read-only: set admin.basic to let users log in and act'],
  tls_required: [
    'forbidden',
    'the admin port has no TLS, so a password is accepted only from this machine: use kubectl port-forward',
  ],
  no_token: ['unauthorized', DENIAL_TEXTS.no_token],
  wrong_token: ['unauthorized', DENIAL_TEXTS.wrong_token],
  no_password: ['unauthorized', 'send a user of admin.basic and the right password as Authorization: Basic'],
};

/** The rule of the API. */
export class ConsoleAccess {
  readonly #parts: ConsoleAccessParts;
  /** The user of each request, as long as it lasts. */
  readonly #users = new WeakMap<IncomingMessage, User>();

  constructor(parts: ConsoleAccessParts) {
    this.#parts = parts;
  }

  /** `isAction`: it may change something. Returns undefined if the request is authorized, else the response that rejects it. */
  async authorize(request: IncomingMessage, isAction: boolean): Promise<ApiResponse | undefined> {
    // First: a browser adds the password that its user entered to the requests of any page, and a page must not cause bans.
    if (isFromOtherSite(request)) return this.#deny('cross_origin');
    const { access, password } = this.#parts;
    if (password === undefined && isAction) return this.#deny('read_only');
    if (password !== undefined && (isAction || BASIC.test(request.headers.authorization ?? '')))
      return this.#authorizeByPassword(request, password);
    const denial = access.authorize(request);
    return denial && this.#deny(denial.reason, denial.response.headers?.['WWW-Authenticate']);
  }

  /** Whether a request that `authorize` allowed still is: its response may last longer than the token or the password. */
  isAuthorized(request: IncomingMessage): boolean {
    const user = this.#users.get(request);
    return user === undefined ? this.#parts.access.authorize(request) === undefined : user.login?.isLive() !== false;
  }

  /**
   * Why a request that `authorize` allowed gets no stored bodies; undefined if it does. The port has no TLS, so they never leave the machine; if
   * there are users, only they read them.
   */
  findBodyDenial(request: IncomingMessage): BodyDenial | undefined {
    if (!isFromLoopback(request)) return 'not_loopback';
    const isLoggedIn = BASIC.test(request.headers.authorization ?? '');
    return this.#parts.password === undefined || isLoggedIn ? undefined : 'login_required';
  }

  /**
   * Rejects any password, so that a browser forgets the one that it has: it drops credentials that a server rejects. None is checked, as a logout
   * must not count as a failed login.
   */
  logOut(request: IncomingMessage): ApiResponse {
    if (isFromOtherSite(request)) return this.#deny('cross_origin');
    const { password } = this.#parts;
    if (password === undefined) return toProblem('not_found', 'nobody can log in here: the config has no admin.basic');
    const headers = { 'WWW-Authenticate': [password.challenge] };
    return toProblem('unauthorized', 'the password is forgotten', { headers });
  }

  async #authorizeByPassword(request: IncomingMessage, password: PasswordGate): Promise<ApiResponse | undefined> {
    if (!isFromLoopback(request)) return this.#deny('tls_required');
    if (!namesThisMachine(request)) return this.#deny('foreign_host');
    const client = { address: toPlainAddress(request.socket.remoteAddress ?? ''), scheme: 'http' } as const;
    const result = await password.check({ client, headers: new HeaderFields(request.rawHeaders) });
    // Only a user is authorized.
    if ('name' in result) {
      this.#users.set(request, result);
      return undefined;
    }
    return result.code === 'credentials_required' ? this.#deny('no_password') : toRefusalProblem(result);
  }

  /** `bearer`: the challenge of the token. */
  #deny(reason: AdminDenialLabel, bearer?: string): ApiResponse {
    this.#parts.onDenied(reason);
    const [code, detail] = DENIALS[reason];
    if (code !== 'unauthorized') return toProblem(code, detail);
    // One field line each, as not all clients parse lists (RFC 9110 §11.6.1).
    const challenges = [bearer, this.#parts.password?.challenge].filter((each) => each !== undefined);
    return toProblem(code, detail, { headers: { 'WWW-Authenticate': challenges } });
  }
}

// The operations of logins: which clients fail, which are banned, and how a ban is lifted.

/** The dependencies of the operations. */
export interface LoginParts {
  readonly journal: { find(query: { readonly limit: number }): readonly JournalEntry[]; readonly size: number };
  readonly realms: () => readonly Pick<RealmConfig, 'realm' | 'limit'>[];
  /** The realm of a route. */
  readonly findRealm: (route: string) => string | undefined;
  readonly attempts: Pick<Attempts, 'findBan' | 'lift'>;
  /** `of`: `client` or `user`. A user's name may be a password in the wrong field, so it is not passed on. */
  readonly onLifted: (realm: string, of: 'client' | 'user') => void;
}

const FAILED: ReadonlySet<Reason> = new Set(['bad_credentials', 'malformed_credentials', 'banned']);
/** Each costs a round trip to the store. */
const MAX_CLIENTS = 100;
const MAX_BODY = 4_096;

/** Builds the operations. */
export function createLoginOperations(parts: LoginParts): Operation[] {
  return [createList(parts), createRelease(parts)];
}

function createList(parts: LoginParts): Operation {
  return defineOperation({
    id: 'listFailedLogins',
    method: 'GET',
    path: '/api/v1/logins',
    summary: 'List clients with recent failed logins, and their bans',
    description: `At most ${MAX_CLIENTS}, those that failed last first; from the requests of this replica that the journal still has.`,
    responses: { 200: { description: 'The clients.', schema: failedLoginList } },
    problems: [],
    async handle() {
      const clients = groupFailures(parts);
      const data = await Promise.all(clients.map(async (each) => ({ ...each, bannedForMs: await findBan(each, parts) })));
      return toJson(200, { data });
    },
  });
}

function createRelease(parts: LoginParts): Operation {
  return defineOperation({
    id: 'releaseLogin',
    method: 'POST',
    path: '/api/v1/logins/release',
    summary: 'Forget the failed logins of a client or a user, and lift the ban',
    description: 'Other replicas that share the store follow within a second.',
    body: { schema: release, maxBytes: MAX_BODY },
    responses: { 200: { description: 'They are forgotten.', schema: released } },
    problems: ['busy'],
    handle: ({ body }) => lift(body, parts),
  });
}

async function lift(body: Release, { realms, attempts, onLifted }: LoginParts) {
  if (!realms().some(({ realm }) => realm === body.realm))
    return toInvalid([{ field: 'realm', message: 'no section has this realm' }]);
  try {
    const hadFailures = await attempts.lift(toAttemptKey(body.realm, body));
    onLifted(body.realm, 'client' in body ? 'client' : 'user');
    return toJson(200, { hadFailures });
  } catch (thrown) {
    if (!(thrown instanceof StoreUnavailable)) throw thrown;
    return toProblem('busy', 'the store is unavailable: try again');
  }
}

type Failures = Omit<FailedLogins, 'bannedForMs'>;

function groupFailures({ journal, findRealm }: LoginParts): Failures[] {
  const found = new Map<string, Failures>();
  for (const { at, line } of journal.find({ limit: Math.max(1, journal.size) })) {
    if (!FAILED.has(line.reason) || line.route === undefined) continue;
    const realm = findRealm(line.route);
    if (realm === undefined) continue;
    const id = JSON.stringify([realm, line.client]);
    const known = found.get(id);
    if (known === undefined && found.size >= MAX_CLIENTS) continue;
    const { failures = 0, lastAt = toInstant(at), routes = [] } = known ?? {};
    const all = routes.includes(line.route) ? routes : [...routes, line.route];
    found.set(id, { realm, client: line.client, failures: failures + 1, lastAt, routes: all });
  }
  return [...found.values()];
}

async function findBan({ realm, client }: Failures, { realms, attempts }: LoginParts): Promise<number | null> {
  const limit = realms().find((each) => each.realm === realm)?.limit;
  if (limit === undefined || limit === 'off') return null;
  const left = await attempts.findBan(toAttemptKey(realm, { client }), limit);
  return left > 0 ? left : null;
}
