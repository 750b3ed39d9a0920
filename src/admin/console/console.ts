/** The console's JSON API (docs/console-api.md). The entry point of a separate bundle (scripts/bundle.ts), which is loaded on first use. */
import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { RequestBody } from '../../core/request.ts';
import { ApiRouter, handleOperation, validateQuery } from '../../http-api/api-router.ts';
import { writeResponse } from '../../http-api/api-writer.ts';
import { createOpenapiOperation, type OpenapiOptions } from '../../http-api/openapi.ts';
import type { ApiResponse, Operation } from '../../http-api/operation.ts';
import { toProblem } from '../../http-api/problem.ts';
import type { ConsoleOperations } from '../../provider/api/operations.ts';
import type { SharedStreams } from '../../state/shared-streams.ts';
import type { Journal } from '../../telemetry/journal/journal.ts';
import { ConsoleAccess, type ConsoleAccessParts } from './console-access.ts';
import { createDeliveryOperations, type DeliveryParts } from './delivery-operations.ts';
import { delivery, deliveryDetail, deliveryPage, requestId } from './delivery-schemas.ts';
import { DeliveryStream } from './delivery-stream.ts';
import { toDetailView, type ViewContext } from './delivery-view.ts';
import { createLoginOperations, type LoginParts } from './login-operations.ts';
import { failedLoginList, release, released } from './login-schemas.ts';
import { createOverviewOperation, type OverviewParts } from './overview.ts';
import { overview } from './overview-schemas.ts';
import { ConsolePage, isOfPage } from './page.ts';
import { createRedact } from './redaction.ts';
import { ReplicaFigures } from './replica-figures.ts';
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
