/** Formats journal entries for the console. Only here texts are built, when somebody asks for them. */
import type { RouteConfig } from '../../config/schema/config.ts';
import { toInstant } from '../../core/clock.ts';
import type { JournalEntry } from '../../telemetry/journal/journal.ts';
import { toBodyView } from './body-view.ts';
import { type ShownHeader, toCurl, toExplain } from './commands.ts';
import type { BodyDenial, DeliveryDetail, DeliveryView } from './delivery-schemas.ts';
import type { Redact } from './redaction.ts';
import { findStopped, toOutcome, toSkew, toStages } from './stages.ts';

/** An entry of this replica or of another one. */
export interface ReplicaEntry extends JournalEntry {
  readonly replica: string;
}

/** The parts of a view that its entry does not contain. */
export interface ViewContext {
  readonly redact: Redact;
  /** Of the current config: no view contains them. */
  readonly secrets: readonly Buffer[];
  readonly findRoute: (name: string) => RouteConfig | undefined;
  /** Where this machine listens for requests; undefined if that is not known. */
  readonly address?: string | undefined;
}

/** The reader of a delivery, and where commands find its capture. */
export interface DetailContext {
  readonly isCaptured: boolean;
  /** Of the admin port. */
  readonly origin: string;
  /** Why a stored body is not shown; undefined if it is. */
  readonly bodyDenial: BodyDenial | undefined;
}

const PROXY = '_proxy';

/** A row of the list. */
export function toView(entry: ReplicaEntry, { redact, findRoute }: ViewContext): DeliveryView {
  const { at, line, details, replica } = entry;
  const stages = toStages(entry, line.route === undefined ? undefined : findRoute(line.route));
  return {
    id: line.requestId,
    replica,
    at: toInstant(at),
    route: line.route ?? null,
    method: line.method,
    path: redact(details?.path),
    client: line.client,
    status: line.status,
    outcome: toOutcome(entry),
    code: line.code,
    reason: line.reason,
    stoppedBy: findStopped(stages),
    stages: stages.map((stage) => ({ ...stage, detail: redact(stage.detail) })),
    event: redact(line.webhookId),
    key: line.key ?? null,
    skewMs: toSkew(entry),
    durationMs: line.durationMs,
    appMs: line.upstreamMs ?? null,
    bytesIn: line.bytesIn,
    bytesOut: details?.bytesOut ?? null,
  };
}

/** One request in full. */
export function toDetailView(entry: ReplicaEntry, context: ViewContext, reader: DetailContext): DeliveryDetail {
  const { line, details, explanation, replica } = entry;
  const { isCaptured, origin, bodyDenial: denial } = reader;
  const { redact, secrets, address } = context;
  const headers = toHeaders(details?.headers ?? '', redact);
  const view = toView(entry, context);
  const { path, route } = view;
  const isRepeatable = path !== null && line.port === undefined && route !== PROXY;
  return {
    ...view,
    port: line.port ?? (line.route === PROXY ? 'proxy' : 'data'),
    user: redact(line.user),
    certificate: redact(line.certificate),
    detail: redact(line.detail),
    observed: line.observed ?? null,
    isUnchecked: line.unchecked === true,
    traceId: line.trace_id ?? null,
    headers,
    body: toBodyView(details?.body, { secrets, denial, replica, bytes: line.bytesIn }),
    findings: (explanation ?? []).map((text) => redact(text) ?? ''),
    commands: {
      curl: isRepeatable ? toCurl({ method: line.method, path, headers, hasBody: line.bytesIn > 0, address }) : null,
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
    commands: { ...commands, curl: redact(commands.curl) },
  };
}

/** The same for a row. */
export function redactView<T extends DeliveryView>(view: T, redact: Redact): T {
  const { path, event, stages } = view;
  return {
    ...view,
    path: redact(path),
    event: redact(event),
    stages: stages.map((stage) => ({ ...stage, detail: redact(stage.detail) })),
  };
}

function toHeaders(text: string, redact: Redact): ShownHeader[] {
  if (text === '') return [];
  return text.split('\n').map((field) => {
    const end = field.indexOf('\t');
    const name = redact(end === -1 ? field : field.slice(0, end)) ?? '';
    return { name, value: end === -1 ? null : redact(field.slice(end + 1)) };
  });
}
