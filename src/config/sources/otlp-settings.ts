/** Reads the settings for exporting spans from the config, with OpenTelemetry's environment variables as defaults. */
import { Secret } from '../../core/secret.ts';
import type { TracingConfig } from '../schema/config.ts';
import { MAX_PEM_BYTES, readRegularFile, toUnread } from './bounded-read.ts';
import { readSecret } from './secrets.ts';

/** Where spans are sent, and with which resource attributes. */
export interface OtlpSettings {
  readonly url: URL;
  /** Reads the headers again, because secrets rotate. Rejects with an error that contains no secret. */
  readonly readHeaders: () => Promise<readonly (readonly [name: string, value: string])[]>;
  readonly ca: Buffer | undefined;
  /** Resource attributes, including `service.name`. */
  readonly resource: Readonly<Record<string, string>>;
}

/** A problem with the settings; `path` is relative to `tracing`. */
interface OtlpProblem {
  readonly path: string;
  readonly message: string;
  readonly hint: string;
}

/** The settings, or the problems with them; neither if spans are not exported. */
export interface OtlpRead {
  readonly settings?: OtlpSettings;
  readonly problems: readonly OtlpProblem[];
}

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
export async function readOtlpSettings(config: TracingConfig, env: OtelEnv = readOtelEnv()): Promise<OtlpRead> {
  const { otlp } = config;
  if (otlp === undefined || env.isDisabled) return { problems: [] };
  const problems: OtlpProblem[] = env.malformed.map((name) => ({
    path: 'otlp',
    message: `the environment variable ${name} is malformed`,
    hint: name.endsWith('ENDPOINT')
      ? 'it must be an http or https URL without a user'
      : 'it must be a list of name=value, percent-encoded',
  }));
  const url = otlp.url === undefined ? env.endpoint?.url : toTracesUrl(otlp.url);
  if (url === undefined && problems.length === 0)
    problems.push({
      path: 'otlp',
      message: 'no collector is configured',
      hint: `${SET_URL}, or set OTEL_EXPORTER_OTLP_ENDPOINT`,
    });
  if (otlp.url === undefined && env.protocol === 'grpc')
    problems.push({
      path: 'otlp',
      message: `the environment selects OTLP over gRPC${env.endpoint === undefined ? '' : ` for ${env.endpoint.variable}`}, but spans are sent over HTTP only`,
      hint: `${SET_URL}, with the collector's port for HTTP`,
    });
  const headers = otlp.headers === undefined ? readFixed(env.headers) : readSources(otlp.headers);
  const problem = await headers.then(
    () => undefined,
    (thrown: unknown) => (thrown instanceof HeaderProblem ? thrown : Promise.reject(thrown)),
  );
  if (problem !== undefined) problems.push({ path: 'otlp.headers', message: problem.message, hint: problem.hint });
  const ca = await readCa(otlp.caFile ?? env.caFile, problems);
  if (url === undefined || problems.length > 0) return { problems };
  const { headers: sources } = otlp;
  const readHeaders = () => (sources === undefined ? readFixed(env.headers) : readSources(sources));
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

class HeaderProblem extends Error {
  readonly hint: string;

  constructor(message: string, hint: string) {
    super(message);
    this.hint = hint;
  }
}

type OtlpFields = Promise<readonly (readonly [string, string])[]>;

async function readSources(sources: NonNullable<NonNullable<TracingConfig['otlp']>['headers']>): OtlpFields {
  return Promise.all(
    Object.entries(sources).map(async ([name, source]) => {
      const read = await readSecret(source);
      if ('problem' in read) throw new HeaderProblem(`${name}: ${read.problem}`, read.hint);
      return toField(name, read.secret);
    }),
  );
}

async function readFixed(headers: OtelEnv['headers']): OtlpFields {
  return headers.map(([name, value]) => toField(name, value));
}

function toField(name: string, secret: Secret): readonly [string, string] {
  const value = secret.expose().toString('latin1');
  if (!FIELD_NAME.test(name))
    throw new HeaderProblem(`${JSON.stringify(name)} is not a header name`, 'a header name must be a token (RFC 9110 §5.6.2)');
  if (!FIELD_VALUE.test(value))
    throw new HeaderProblem(`${name}: the value is not allowed in a header`, 'a value must be one line of text');
  return [name, value];
}

async function readCa(file: string | undefined, problems: OtlpProblem[]): Promise<Buffer | undefined> {
  if (file === undefined) return undefined;
  try {
    return await readRegularFile(file, MAX_PEM_BYTES);
  } catch (thrown) {
    problems.push({ path: 'otlp.caFile', ...toUnread(file, thrown) });
    return undefined;
  }
}

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
