/** Formats journal entries for the console. Only here texts are built, when somebody asks for them. */
import { isAscii } from 'node:buffer';
import type { RouteConfig } from '../../config/schema/config.ts';
import { toInstant } from '../../core/clock.ts';
import { containsSecret } from '../../core/secret.ts';
import { EVENT_TYPE_HEADERS } from '../../gateway/pipeline/record.ts';
import { toInboxEndpoint } from '../../provider/events/event.ts';
import type { BodyAbsence, JournalBody, JournalEntry } from '../../telemetry/journal/journal.ts';
import type { BodyDenial, BodyView, DeliveryDetail, DeliveryView } from './schemas.ts';
import { findStopped, toOutcome, toSkew, toStages } from './stages.ts';

/** The parts of a view that its entry does not contain. */
export interface ViewContext {
  readonly replica: string;
  readonly redact: Redact;
  /** Of the current config: no view contains them. */
  readonly secrets: readonly Buffer[];
  readonly findRoute: (name: string) => RouteConfig | undefined;
  /** Where this machine listens for requests; undefined if that is not known. */
  readonly address?: string | undefined;
}

const PROXY = '_proxy';
/** In which senders name the type of an event. Whether the signature covers it differs. */
const TYPE_HEADERS = EVENT_TYPE_HEADERS.map((name) => new RegExp(`^${name}\t(.+)$`, 'm'));

/** A row of the list, before `redactView`: filters see what operators typed. */
export function toView(entry: JournalEntry, { replica, findRoute }: Pick<ViewContext, 'replica' | 'findRoute'>): DeliveryView {
  const { at, line, details } = entry;
  const stages = toStages(entry, line.route === undefined ? undefined : findRoute(line.route));
  return {
    id: line.requestId,
    replica,
    at: toInstant(at),
    route: line.route ?? null,
    method: line.method,
    path: details?.path ?? null,
    client: line.client,
    status: line.status,
    outcome: toOutcome(entry),
    code: line.code,
    reason: line.reason,
    stoppedBy: findStopped(stages),
    stages,
    observed: line.observed ?? null,
    event: line.webhookId ?? null,
    type: findType(details?.headers),
    delivery: details?.queuedAs === undefined ? null : `${details.queuedAs}~${toInboxEndpoint(line.route ?? '')}`,
    key: line.key ?? null,
    skewMs: toSkew(entry),
    durationMs: line.durationMs,
    appMs: line.upstreamMs ?? null,
    bytesIn: line.bytesIn,
    bytesOut: details?.bytesOut ?? null,
  };
}

/** One request in full. */
export function toDetailView(
  entry: JournalEntry,
  context: ViewContext,
  reader: {
    readonly isCaptured: boolean;
    /** Of the admin port. */
    readonly origin: string;
    /** Why a stored body is not shown; undefined if it is. */
    readonly bodyDenial: BodyDenial | undefined;
  },
): DeliveryDetail {
  const { line, details, explanation } = entry;
  const { isCaptured, origin, bodyDenial: denial } = reader;
  const { redact, secrets, address, replica } = context;
  const headers = toHeaders(details?.headers ?? '', redact);
  const view = redactView(toView(entry, context), redact);
  const { path, route } = view;
  const isRepeatable = path !== null && line.port === undefined && route !== PROXY;
  return {
    ...view,
    port: line.port ?? (line.route === PROXY ? 'proxy' : 'data'),
    user: redact(line.user),
    certificate: redact(line.certificate),
    detail: redact(line.detail),
    isUnchecked: line.unchecked === true,
    traceId: line.trace_id ?? null,
    headers,
    body: toBodyView(details?.body, { secrets, denial, replica, bytes: line.bytesIn }),
    findings: (explanation ?? []).map((text) => redact(text) ?? ''),
    commands: {
      repeat: isRepeatable
        ? (toSend(view, context) ?? toCurl({ method: line.method, path, headers, hasBody: line.bytesIn > 0, address }))
        : null,
      explain: isCaptured && route !== null ? toExplain(line.requestId, route, origin) : null,
    },
  };
}

/** A request as another replica showed it, which may not have known all secrets of this one's config. */
export function redactDetail(full: DeliveryDetail, redact: Redact): DeliveryDetail {
  const { headers, findings, commands } = full;
  return {
    ...redactView(full, redact),
    user: redact(full.user),
    certificate: redact(full.certificate),
    detail: redact(full.detail),
    headers: headers.map(({ name, value }) => ({ name: redact(name) ?? '', value: redact(value) })),
    findings: findings.map((text) => redact(text) ?? ''),
    commands: { ...commands, repeat: redact(commands.repeat) },
  };
}

/** The same for a row. */
export function redactView<T extends DeliveryView>(view: T, redact: Redact): T {
  const { path, event, type, stages } = view;
  return {
    ...view,
    path: redact(path),
    event: redact(event),
    type: redact(type),
    stages: stages.map((stage) => ({ ...stage, detail: redact(stage.detail) })),
  };
}

function findType(headers = ''): string | null {
  for (const pattern of TYPE_HEADERS) {
    const [, value] = pattern.exec(headers) ?? [];
    if (value !== undefined) return value;
  }
  return null;
}

function toHeaders(text: string, redact: Redact): ShownHeader[] {
  if (text === '') return [];
  return text.split('\n').map((field) => {
    const end = field.indexOf('\t');
    const name = redact(end === -1 ? field : field.slice(0, end)) ?? '';
    return { name, value: end === -1 ? null : redact(field.slice(end + 1)) };
  });
}

const ABSENCES: Readonly<Record<BodyAbsence, string>> = {
  not_verified: 'Not stored: only bodies of verified requests are stored.',
  not_forwarded: 'Not stored: only bodies of events that the app gets are stored. If it is a duplicate, see the first delivery.',
  too_large: 'Not stored: it is larger than storeBody.maxBytes, and values can be redacted only in a whole body.',
  not_json: 'Not stored: values can be redacted only in JSON in UTF-8 with one interpretation and at most 10,000 values.',
  not_text: 'Not stored: it is not text in UTF-8.',
  has_secret: 'Not stored: it contains a signing secret of the config.',
  memory_low: 'Not stored: sidegate was near its memory limit, and deliveries come first.',
  evicted: 'No longer stored: newer bodies or requests needed the memory of the journal (journal.maxBodyBytes).',
  expired: 'No longer stored: storeBody.retention has passed, or the settings of the route have changed.',
};

/** Returns null if the route stores no bodies. */
function toBodyView(
  body: JournalBody | undefined,
  context: {
    /** Of the current config: a body that contains one is not shown. */
    readonly secrets: readonly Buffer[];
    /** Undefined if the reader may see it. */
    readonly denial: BodyDenial | undefined;
    /** Its host. */
    readonly replica: string;
    /** Size of the body as it arrived. */
    readonly bytes: number;
  },
): BodyView | null {
  if (body === undefined) return null;
  const { content, isTruncated, redactions } = body;
  const { bytes, secrets, denial } = context;
  const none = { text: null, bytes, isTruncated: false, redactions: 0 };
  if (!Buffer.isBuffer(content)) return { ...none, absence: content, note: ABSENCES[content] };
  if (denial !== undefined) return { ...none, absence: denial, note: toDenialNote(denial, context.replica) };
  // A secret that was configured later.
  if (containsSecret(content, secrets)) return { ...none, absence: 'has_secret', note: ABSENCES.has_secret };
  const notes = [
    ...(isTruncated ? [`The first ${content.length} of ${bytes} bytes.`] : []),
    ...(redactions > 0 ? [`${redactions} ${redactions === 1 ? 'value is' : 'values are'} redacted.`] : []),
  ];
  return {
    text: content.toString(),
    bytes,
    isTruncated,
    redactions,
    absence: null,
    note: notes.length === 0 ? null : notes.join(' '),
  };
}

function toDenialNote(denial: BodyDenial, replica: string): string {
  if (denial === 'login_required') return 'Stored, but hidden: log in to read it.';
  if (denial === 'not_loopback')
    return 'Stored, but only shown to clients on the same machine, as the admin port has no TLS: use kubectl port-forward.';
  return `Stored on ${replica} only: open the console of that replica.`;
}

// Commands that repeat or explain a request.

/** A header field; `value` is null if it is hidden. */
interface ShownHeader {
  readonly name: string;
  readonly value: string | null;
}

/** The request of a command. */
export interface CommandRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly ShownHeader[];
  readonly hasBody: boolean;
  /** Where this machine listens for requests; undefined if that is not known. */
  readonly address: string | undefined;
}

const SINGLE_QUOTE = /'/g;
const GLOB = /[[\]{}]/;
/** curl sets these itself. */
const OWN_HEADERS: ReadonlySet<string> = new Set(['host', 'content-length', 'transfer-encoding', 'connection', 'expect']);

/** One argument of a POSIX shell. */
function quote(text: string): string {
  return `'${text.replace(SINGLE_QUOTE, `'\\''`)}'`;
}

/**
 * Repeats the request; the body is read from the file `body`, as no body is stored. Hidden headers are left to the reader. The client chose the
 * Host, so the command connects to this machine, and not to the host that the client named.
 */
export function toCurl({ method, path, headers, hasBody, address }: CommandRequest): string {
  const host = headers.find(({ name }) => name === 'host')?.value ?? 'localhost:8080';
  const shown = headers.flatMap(({ name, value }) =>
    value === null || OWN_HEADERS.has(name) ? [] : ['--header', quote(`${name}: ${value}`)],
  );
  const body = hasBody ? ['--data-binary', '@body'] : [];
  const url = `http://${host}${path}`;
  const options = [
    ...(address === undefined ? [] : ['--connect-to', quote(`::${address}`)]),
    // A path with [1-100000] would be as many requests.
    ...(GLOB.test(url) ? ['--globoff'] : []),
  ];
  return ['curl', '--request', quote(method), ...options, ...shown, ...body, quote(url)].join(' ');
}

/** Signs the body again; undefined if `sidegate send` cannot: a signature is never shown, so curl could only repeat unsigned requests. */
function toSend({ method, path, route, event, outcome }: DeliveryView, { address, findRoute }: ViewContext): string | undefined {
  const { webhook, match } = (route === null ? undefined : findRoute(route)) ?? {};
  if (method !== 'POST' || route === null || webhook === undefined || webhook.keys.length === 0 || match?.host !== undefined)
    return undefined;
  // With the ID of an event that was handled, it would only be a duplicate.
  const id = event !== null && outcome === 'failed' ? ['--id', quote(event)] : [];
  const url = quote(`http://${address ?? 'localhost:8080'}${path}`);
  return ['sidegate send --config gate.yaml --route', quote(route), ...id, url, 'body'].join(' ');
}

/** Explains a captured delivery with the keys of the config. */
function toExplain(requestId: string, route: string, origin: string): string {
  return `curl ${quote(`${origin}/captures/${requestId}`)} | sidegate explain --config gate.yaml --route ${quote(route)} -`;
}

// Hides configured secrets in texts that clients wrote: a sender may put its secret into a path or a header by mistake.

const REDACTED = '[redacted]';

/** Returns the text, or `[redacted]`; null stays null. */
type Redact = (text: string | null | undefined) => string | null;

/** `secrets`: of the current config. */
export function createRedact(secrets: readonly Buffer[]): Redact {
  // Header fields and paths are Latin-1 of any bytes, which UTF-8 encodes as other bytes.
  const forms = secrets.flatMap((secret) => (isAscii(secret) ? [secret] : [secret, Buffer.from(secret.toString('latin1'))]));
  const shortest = Math.min(...secrets.map((secret) => secret.toString().length));
  return (text) => {
    if (text === undefined || text === null) return null;
    // Most texts are shorter than any secret, and this runs for each streamed request.
    return text.length >= shortest && containsSecret(Buffer.from(text), forms) ? REDACTED : text;
  };
}
