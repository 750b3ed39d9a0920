/** Reads OpenTelemetry's environment variables. They provide defaults for the config, and never enable tracing. */
import { Secret } from '../../core/secret.ts';

/** The values of the variables. An empty variable counts as unset (OpenTelemetry environment variable specification). */
export interface OtelEnv {
  readonly isDisabled: boolean;
  /** Where spans are sent, and the variable that contains it. */
  readonly endpoint: { readonly url: URL; readonly variable: string } | undefined;
  /** Protocol of that endpoint; undefined if not set. */
  readonly protocol: string | undefined;
  readonly headers: readonly (readonly [name: string, value: Secret])[];
  readonly caFile: string | undefined;
  readonly serviceName: string | undefined;
  readonly resource: Readonly<Record<string, string>>;
  /** Names of malformed variables; not their values, which may be secret. */
  readonly malformed: readonly string[];
}

const TRACES_PATH = 'v1/traces';

/** Reads them. */
export function readOtelEnv(env: Readonly<Record<string, string | undefined>> = process.env): OtelEnv {
  const malformed: string[] = [];
  const first = (...names: readonly string[]): readonly [name: string, value: string] | undefined => {
    for (const name of names) {
      const value = env[name]?.trim();
      if (value !== undefined && value !== '') return [name, value];
    }
    return undefined;
  };
  const pairs = (...names: readonly string[]): (readonly [string, string])[] => {
    const [name, text] = first(...names) ?? [];
    const parsed = text === undefined ? [] : parsePairs(text);
    if (parsed === undefined) malformed.push(name ?? '');
    return parsed ?? [];
  };
  return {
    isDisabled: first('OTEL_SDK_DISABLED')?.[1].toLowerCase() === 'true',
    endpoint: readEndpoint(first, malformed),
    protocol: first('OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'OTEL_EXPORTER_OTLP_PROTOCOL')?.[1],
    headers: pairs('OTEL_EXPORTER_OTLP_TRACES_HEADERS', 'OTEL_EXPORTER_OTLP_HEADERS').map(([name, value]) => [
      name,
      new Secret(Buffer.from(value)),
    ]),
    caFile: first('OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE', 'OTEL_EXPORTER_OTLP_CERTIFICATE')?.[1],
    serviceName: first('OTEL_SERVICE_NAME')?.[1],
    resource: Object.fromEntries(pairs('OTEL_RESOURCE_ATTRIBUTES')),
    malformed,
  };
}

/** The variable for traces contains the whole URL, the general one only the base URL. */
function readEndpoint(
  first: (...names: readonly string[]) => readonly [string, string] | undefined,
  malformed: string[],
): OtelEnv['endpoint'] {
  const [variable, text] = first('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT') ?? [];
  if (variable === undefined || text === undefined) return undefined;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol) || url.username !== '' || url.password !== '') {
    malformed.push(variable);
    return undefined;
  }
  if (variable === 'OTEL_EXPORTER_OTLP_ENDPOINT') url.pathname = `${url.pathname.replace(/\/$/, '')}/${TRACES_PATH}`;
  return { url, variable };
}

/** `name=value,name=value`, percent-encoded; undefined where it is malformed. */
function parsePairs(text: string): (readonly [string, string])[] | undefined {
  const pairs: (readonly [string, string])[] = [];
  for (const part of text.split(',')) {
    if (part.trim() === '') continue;
    const at = part.indexOf('=');
    const name = part.slice(0, Math.max(at, 0)).trim();
    const value = decode(part.slice(at + 1).trim());
    if (name === '' || value === undefined) return undefined;
    pairs.push([name, value]);
  }
  return pairs;
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
