/** Reads the settings for exporting spans from the config, with OpenTelemetry's environment variables as defaults. */
import type { Secret } from '../../core/secret.ts';
import type { TracingConfig } from '../schema/config.ts';
import { readPem } from './bounded-read.ts';
import { type OtelEnv, readOtelEnv } from './otel-env.ts';
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
  const read = await readPem(file);
  if (Buffer.isBuffer(read)) return read;
  problems.push({ path: 'otlp.caFile', message: read.problem, hint: read.hint });
  return undefined;
}
