/** `sidegate requests`: shows recent requests to a running sidegate, and why each was rejected. */
import type { DeliveryDetail, DeliveryView } from '../admin/console/schemas.ts';
import { OUTCOMES } from '../admin/console/stages.ts';
import { findNearest } from '../config/schema/did-you-mean.ts';
import { keepAlive, type Milliseconds, pause, systemClock } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import { formatJson, toPrintable } from '../core/text.ts';
import { type ApiClient, ApiFailure, readPages, type StreamEvent, toQuery, toSegment } from './api-client.ts';
import { type ApiCommand, type ApiGroup, FORMAT } from './api-command.ts';
import type { GivenTexts } from './api-options.ts';
import { type Column, formatMembers, formatTable } from './api-output.ts';
import { COLLECT } from './base-program.ts';
import { toChoice, toCount, toTime } from './input.ts';
import { EXIT, type Io } from './io.ts';

/** Requests without a route, and those of the forward proxy; no config can have such a name. */
const SPECIAL: readonly string[] = ['_unmatched', '_proxy'];

const PATH = '/deliveries';
const REQUEST_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** Of a line, so that the columns of most are aligned: the longest outcome, and most names of routes. */
const OUTCOME_WIDTH = 9;
const ROUTE_WIDTH = 16;
const NONE = '-';

interface RequestsOptions extends GivenTexts<'route' | 'reason' | 'status' | 'client' | 'type' | 'id' | 'from' | 'to'> {
  readonly format: string;
  readonly outcome?: readonly string[];
  readonly limit: string;
  readonly follow?: true;
}

const COLUMNS: readonly Column<DeliveryView>[] = [
  ['AT', ({ at }) => at],
  ['OUTCOME', ({ outcome }) => outcome],
  ['STATUS', ({ status }) => String(status)],
  ['ROUTE', ({ route }) => route ?? ''],
  ['WHY', toReason],
  ['EVENT', ({ event }) => event ?? ''],
  ['REQUEST', ({ id }) => id],
];

const list: ApiCommand<RequestsOptions> = {
  description: 'list recent requests, newest first',
  options: [
    FORMAT,
    ['--route <name>', 'only requests of this route; _unmatched for those without a route'],
    ['--outcome <outcome>', `${OUTCOMES.slice(0, -1).join(', ')} or ${OUTCOMES.at(-1)}; repeatable`, COLLECT],
    ['--reason <reason>', 'only requests with this reason, such as bad_signature'],
    ['--status <status>', 'only responses with this status, such as 401 or 4xx'],
    ['--client <address>', 'only requests of this client'],
    ['--type <type>', 'only events of this type, if a header names it'],
    ['--id <id>', 'only the request or the event with this ID'],
    ['--from <time>', 'only requests that arrived since then: RFC 3339, or a duration before now such as 2h'],
    ['--to <time>', 'only requests that arrived before then'],
    ['--limit <number>', 'maximum number of requests', '50'],
    ['--follow', 'then show further requests as they finish, newest last, until interrupted'],
  ],
  async run({ client, options, io, printTable }) {
    const { route, reason, status, client: address, type, id, format, follow } = options;
    if (follow === true && options.to !== undefined) throw usageError('use either --follow or --to');
    const outcome = options.outcome?.map((each) => toChoice(each, OUTCOMES, '--outcome'));
    const times = { from: toTime(options.from, '--from'), to: toTime(options.to, '--to') };
    const query = toQuery({ outcome, route, reason, status, client: address, type, id, ...times });
    const limit = toCount(options.limit, '--limit');
    const load = (): Promise<DeliveryView[]> =>
      readPages<DeliveryView>(client, PATH, new URLSearchParams(query), { limit, position: 'cursor' });
    if (follow === true) {
      await requireRoute(client, route);
      const show = (row: DeliveryView): void => io.stdout(format === 'json' ? formatJson(row, false) : formatLine(row));
      return followRequests({ client, path: `${PATH}/stream?${query}`, load, show }, io);
    }
    const all = await load();
    if (all.length === 0) await requireRoute(client, route);
    return printTable(all, COLUMNS);
  },
};

const show: ApiCommand<RequestsOptions> = {
  description: 'show one request: its stages, headers and the finding of the analysis',
  argument: ['<id>', 'ID of the request, or of its event'],
  options: [FORMAT],
  async run({ client, print }, id: string) {
    const request = REQUEST_ID.test(id) ? id : await findRequest(client, id);
    return print((await client.request('GET', `${PATH}/${toSegment(request)}`)) as DeliveryDetail, formatDetail);
  },
};

export const REQUESTS: ApiGroup<RequestsOptions> = {
  description: 'show recent requests to a running sidegate, and why each was rejected',
  api: 'admin',
  commands: { list, show },
};

/** The API accepts any name, as the journal may have requests of a route that the config no longer has. */
async function requireRoute(client: ApiClient, route: string | undefined): Promise<void> {
  const problem = route === undefined ? undefined : await findRouteProblem(client, route);
  if (problem !== undefined) throw new ApiFailure(problem);
}

function formatLine(row: DeliveryView): string {
  const { at, outcome, status, route, event, id } = row;
  const cells = [
    at,
    outcome.padEnd(OUTCOME_WIDTH),
    String(status),
    (route ?? NONE).padEnd(ROUTE_WIDTH),
    toReason(row),
    event ?? NONE,
    id,
  ];
  return `${cells.map(toPrintable).join('  ')}\n`;
}

/** The stage that ended the request, and what it found. */
function toReason({ stages }: Pick<DeliveryView, 'stages'>): string {
  const end = stages.find(({ result }) => result === 'stopped' || result === 'answered') ?? stages.at(-1);
  return end === undefined ? '' : `${end.name}: ${toWords(end.detail ?? end.result)}`;
}

function toWords(code: string): string {
  return code.replaceAll('_', ' ');
}

/** The newest request with the event. */
async function findRequest(client: ApiClient, event: string): Promise<string> {
  const [found] = await readPages<DeliveryView>(client, PATH, toQuery({ id: event }), { limit: 1, position: 'cursor' });
  if (found === undefined)
    throw new ApiFailure(
      `no recent request has the ID ${event}, nor its event: sidegate requests list shows the IDs. The ID of an event is known once its signature is verified`,
    );
  return found.id;
}

/** The stored body, with its line breaks. */
function formatBody(text: string): string {
  return text === '' ? '' : `BODY\n${text.trimEnd().split('\n').map(toPrintable).join('\n')}\n`;
}

function formatDetail(detail: DeliveryDetail): string {
  const { stages, findings, headers, commands } = detail;
  const facts = formatMembers([
    ['request', detail.id],
    ['event', detail.event],
    ['type', detail.type],
    ['delivery', detail.delivery],
    ['arrived', detail.at],
    ['outcome', `${detail.outcome}: ${toWords(detail.reason)} (${detail.code})`],
    ['problem', detail.detail],
    ['would be rejected', detail.observed],
    ['route', detail.route],
    ['sent', `${detail.method} ${detail.path ?? ''}`],
    ['client', detail.client],
    ['user', detail.user ?? detail.certificate],
    ['key', detail.key],
    ['status', String(detail.status)],
    ['duration', `${detail.durationMs.toFixed(1)} ms`],
    ['app', detail.appMs === null ? undefined : `${detail.appMs.toFixed(1)} ms`],
    ['body', `${detail.bytesIn} bytes`],
    ['stored body', detail.body?.note],
    ['replica', detail.replica],
    ['trace', detail.traceId],
  ]);
  return [
    facts,
    formatTable(stages, [
      ['STAGE', ({ name }) => name],
      ['RESULT', ({ result }) => toWords(result)],
      ['DETAIL', ({ detail: found }) => toWords(found ?? '')],
    ]),
    findings.map((text) => `${toPrintable(text)}\n`).join(''),
    headers.length === 0
      ? ''
      : formatTable(headers, [
          ['HEADER', ({ name }) => name],
          ['VALUE', ({ value }) => value ?? '(hidden)'],
        ]),
    formatBody(detail.body?.text ?? ''),
    formatMembers([
      ['repeat it', commands.repeat],
      ['explain it', commands.explain],
    ]),
  ]
    .filter((part) => part !== '')
    .join('\n');
}

/** Why no request can have the route; undefined if it exists. */
async function findRouteProblem(client: ApiClient, name: string): Promise<string | undefined> {
  const overview = (await client.request('GET', '/overview')) as {
    readonly routes?: readonly { readonly name: string }[];
  } | null;
  if (!Array.isArray(overview?.routes)) throw client.toStranger();
  const names = [...overview.routes.map((route) => route.name), ...SPECIAL];
  if (names.includes(name)) return undefined;
  const nearest = findNearest(name, names);
  const suggestion = nearest === undefined ? '' : `did you mean ${nearest}? `;
  return `no route is named ${name}; ${suggestion}The routes are ${names.join(', ')}`;
}

/** The requests to follow, and how to show one. */
interface FollowedRequests {
  readonly client: ApiClient;
  /** Of the stream. */
  readonly path: string;
  /** Loads recent requests, newest first. */
  readonly load: () => Promise<readonly DeliveryView[]>;
  readonly show: (row: DeliveryView) => void;
}

/** Requests that the list and the stream both contain are shown once. */
const MAX_KNOWN = 2_000;
const RETRY_MS: Milliseconds = 1_000;

/** Ends only when the reader of its output has gone, or if the API rejects it. Reconnects after an interruption. */
async function followRequests(followed: FollowedRequests, io: Io): Promise<number> {
  const release = keepAlive();
  try {
    return await new Follower(followed, io).run();
  } finally {
    release();
  }
}

class Follower {
  readonly #followed: FollowedRequests;
  readonly #io: Io;
  readonly #known = new Set<string>();
  #lastId: string | undefined;
  /** A connection that never was open is not repeated: the address is probably wrong. */
  #hasBeenOpen = false;
  #isLost = false;

  constructor(followed: FollowedRequests, io: Io) {
    this.#followed = followed;
    this.#io = io;
  }

  async run(): Promise<number> {
    for (;;) {
      const failure = await this.#followOnce();
      if (this.#io.outputClosed?.aborted === true) return EXIT.ok;
      if (!this.#hasBeenOpen || (failure.status >= 400 && failure.status < 500)) throw failure;
      if (!this.#isLost) this.#note(`${failure.message}; trying again`);
      this.#isLost = true;
      await pause(systemClock, RETRY_MS);
    }
  }

  /** Resolves with the reason for the end of the stream. */
  async #followOnce(): Promise<ApiFailure> {
    const { client, path, load } = this.#followed;
    const { outputClosed } = this.#io;
    const ending = new AbortController();
    const signal = outputClosed === undefined ? ending.signal : AbortSignal.any([ending.signal, outputClosed]);
    try {
      // First the stream, so that nothing is missed between it and the list.
      const events = await client.openEvents(path, this.#lastId, signal);
      for (const row of (await load()).toReversed()) this.#show(row);
      this.#hasBeenOpen = true;
      this.#isLost = false;
      for await (const event of events) this.#receive(event);
      return new ApiFailure('sidegate closed the stream');
    } catch (thrown) {
      if (thrown instanceof ApiFailure) return thrown;
      throw thrown;
    } finally {
      // Else a stream whose list could not be read would stay open.
      ending.abort();
    }
  }

  #receive({ name, id, data }: StreamEvent): void {
    this.#lastId = id === '' ? this.#lastId : id;
    if (name === 'gap') this.#note(`more requests arrive than can be shown: ${toSkipped(data)} are missing here`);
    if (name !== 'message') return;
    const row = parseRow(data);
    if (row === undefined) throw this.#followed.client.toStranger();
    this.#show(row);
  }

  #show(row: DeliveryView): void {
    if (this.#known.has(row.id)) return;
    this.#known.add(row.id);
    if (this.#known.size > MAX_KNOWN) for (const oldest of this.#known) if (this.#known.delete(oldest)) break;
    this.#followed.show(row);
  }

  #note(text: string): void {
    this.#io.stderr(`sidegate: ${toPrintable(text)}\n`);
  }
}

function parseRow(data: string): DeliveryView | undefined {
  try {
    return JSON.parse(data) as DeliveryView;
  } catch {
    return undefined;
  }
}

function toSkipped(data: string): string {
  return /"skipped":(\d{1,15})/.exec(data)?.[1] ?? 'some';
}
