/** Reads the settings for exporting spans from the config, with OpenTelemetry's environment variables as defaults. */
import { error, type Fault, type Problem, unwrap } from '../../core/problem.ts';
import { Secret } from '../../core/secret.ts';
import type { TracingConfig } from '../schema/config.ts';
import { readCas } from './bounded-read.ts';
import { readSecret } from './secrets.ts';

type OtlpConfig = NonNullable<TracingConfig['otlp']>;
type OtlpField = readonly [name: string, value: string];
type OtlpFields = readonly OtlpField[];

/** Where spans are sent, and with which resource attributes. */
export interface OtlpSettings {
  readonly url: URL;
  /** Reads the headers again, because secrets rotate. Rejects with an error that contains no secret. */
  readonly readHeaders: () => Promise<OtlpFields>;
  readonly ca: Buffer | undefined;
  /** Resource attributes, including `service.name`. */
  readonly resource: Readonly<Record<string, string>>;
}

/** The settings, or the problems with them; neither if spans are not exported. */
export interface OtlpRead {
  readonly settings?: OtlpSettings;
  readonly problems: readonly Problem[];
}

const PATH = ['tracing', 'otlp'];
const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const SET_URL = 'set url, for example http://127.0.0.1:4318';

/** The values of the variables. An empty variable counts as unset (OpenTelemetry environment variable specification). */
interface OtelEnv {
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

/** Reads the settings; `env` defaults to the environment of the process. */
export async function readOtlpSettings(config: TracingConfig | undefined, env: OtelEnv = readOtelEnv()): Promise<OtlpRead> {
  if (config?.otlp === undefined || env.isDisabled) return { problems: [] };
  const { otlp } = config;
  const problems = env.malformed.map((name) =>
    error(
      PATH,
      `the environment variable ${name} is malformed`,
      name.endsWith('ENDPOINT')
        ? 'it must be an http or https URL without a user'
        : 'it must be a list of name=value, percent-encoded',
    ),
  );
  const url = otlp.url === undefined ? env.endpoint?.url : toTracesUrl(otlp.url);
  if (url === undefined && problems.length === 0)
    problems.push(error(PATH, 'no collector is configured', `${SET_URL}, or set OTEL_EXPORTER_OTLP_ENDPOINT`));
  if (otlp.url === undefined && env.protocol === 'grpc')
    problems.push(
      error(
        PATH,
        `the environment selects OTLP over gRPC${env.endpoint === undefined ? '' : ` for ${env.endpoint.variable}`}, but spans are sent over HTTP only`,
        `${SET_URL}, with the collector's port for HTTP`,
      ),
    );
  unwrap(await readFields(otlp, env), [...PATH, 'headers'], problems);
  const caFile = otlp.caFile ?? env.caFile;
  const ca = caFile === undefined ? undefined : unwrap(await readCas(caFile), [...PATH, 'caFile'], problems);
  if (url === undefined || problems.length > 0) return { problems };
  const readHeaders = async () => {
    const fields = await readFields(otlp, env);
    if ('problem' in fields) throw new Error(fields.problem);
    return fields;
  };
  return { settings: { url, readHeaders, ca, resource: toResource(config, env) }, problems };
}

/** Adds the default path for traces to a URL without a path. */
function toTracesUrl(text: string): URL {
  const url = new URL(text);
  if (url.pathname === '/') url.pathname = '/v1/traces';
  return url;
}

function toResource({ serviceName, resource }: TracingConfig, env: OtelEnv): Readonly<Record<string, string>> {
  const name = serviceName ?? resource['service.name'] ?? env.serviceName ?? env.resource['service.name'] ?? 'sidegate';
  return { ...env.resource, ...resource, 'service.name': name };
}

async function readFields({ headers }: OtlpConfig, env: OtelEnv): Promise<OtlpFields | Fault> {
  if (headers === undefined) return toFields(env.headers.map(([name, value]) => toField(name, value)));
  const read = Object.entries(headers).map(async ([name, source]) => {
    const found = await readSecret(source);
    return 'problem' in found ? { ...found, problem: `${name}: ${found.problem}` } : toField(name, found.secret);
  });
  return toFields(await Promise.all(read));
}

function toFields(read: readonly (OtlpField | Fault)[]): OtlpFields | Fault {
  const fields: OtlpField[] = [];
  for (const each of read) {
    if ('problem' in each) return each;
    fields.push(each);
  }
  return fields;
}

function toField(name: string, secret: Secret): OtlpField | Fault {
  const value = secret.expose().toString('latin1');
  if (!FIELD_NAME.test(name))
    return {
      problem: `${JSON.stringify(name)} is not a header name`,
      hint: 'a header name must be a token (RFC 9110 §5.6.2)',
    };
  if (!FIELD_VALUE.test(value))
    return { problem: `${name}: the value is not allowed in a header`, hint: 'a value must be one line of text' };
  return [name, value];
}

/** Reads OpenTelemetry's environment variables. They never enable tracing. */
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
