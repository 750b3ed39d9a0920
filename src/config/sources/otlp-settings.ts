/** Reads what sending spans takes: from the config, else from OpenTelemetry's environment variables. */
import { readFile } from 'node:fs/promises';
import type { Secret } from '../../core/secret.ts';
import type { TracingConfig } from '../schema/config.ts';
import { type OtelEnv, readOtelEnv } from './otel-env.ts';
import { readSecret } from './secrets.ts';

/** Where spans are sent, and as whose. */
export interface OtlpSettings {
  readonly url: URL;
  /** Reads the header fields anew: secrets rotate. Rejects with a text that holds none. */
  readonly readHeaders: () => Promise<readonly (readonly [name: string, value: string])[]>;
  readonly ca: Buffer | undefined;
  /** `service.name` among them. */
  readonly resource: Readonly<Record<string, string>>;
}

/** Something that is wrong; `path` is below `tracing`. */
export interface OtlpProblem {
  readonly path: string;
  readonly message: string;
  readonly hint: string;
}

/** Settings, or why there are none; neither where nothing is to be sent. */
export interface OtlpRead {
  readonly settings?: OtlpSettings;
  readonly problems: readonly OtlpProblem[];
}

const FIELD_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const GIVE_URL = 'give url, for example http://127.0.0.1:4318';

/** Reads them; `env` as the process has it. */
export async function readOtlpSettings(config: TracingConfig, env: OtelEnv = readOtelEnv()): Promise<OtlpRead> {
  const { otlp } = config;
  if (otlp === undefined || env.isDisabled) return { problems: [] };
  const problems: OtlpProblem[] = env.malformed.map((name) => ({
    path: 'otlp',
    message: `the environment variable ${name} is malformed`,
    hint: name.endsWith('ENDPOINT') ? 'it is an http or https URL without a user' : 'it is a list of name=value, percent-encoded',
  }));
  const url = otlp.url === undefined ? env.endpoint?.url : toTracesUrl(otlp.url);
  if (url === undefined && problems.length === 0)
    problems.push({
      path: 'otlp',
      message: 'nothing says where spans are sent',
      hint: `${GIVE_URL}, or set OTEL_EXPORTER_OTLP_ENDPOINT`,
    });
  if (otlp.url === undefined && env.protocol === 'grpc')
    problems.push({
      path: 'otlp',
      message: `the environment asks for OTLP by grpc, and ${env.endpoint?.variable ?? 'no endpoint'} for its port; spans are sent by http only`,
      hint: `${GIVE_URL}: the port of the collector for HTTP`,
    });
  const headers = otlp.headers === undefined ? readFixed(env.headers) : readSources(otlp.headers);
  const problem = await headers.then(
    () => undefined,
    (thrown: unknown) => (thrown instanceof HeaderProblem ? thrown : Promise.reject(thrown)),
  );
  if (problem !== undefined) problems.push({ path: 'otlp.headers', message: problem.message, hint: problem.hint });
  const ca = await readAuthorities(otlp.caFile ?? env.caFile, problems);
  if (url === undefined || problems.length > 0) return { problems };
  const { headers: sources } = otlp;
  const readHeaders = () => (sources === undefined ? readFixed(env.headers) : readSources(sources));
  return { settings: { url, readHeaders, ca, resource: toResource(config, env) }, problems };
}

/** A URL without a path is a collector, whose traces have a path of their own. */
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

type Fields = Promise<readonly (readonly [string, string])[]>;

async function readSources(sources: NonNullable<NonNullable<TracingConfig['otlp']>['headers']>): Fields {
  return Promise.all(
    Object.entries(sources).map(async ([name, source]) => {
      const read = await readSecret(source);
      if ('problem' in read) throw new HeaderProblem(`${name}: ${read.problem}`, read.hint);
      return toField(name, read.secret);
    }),
  );
}

async function readFixed(headers: OtelEnv['headers']): Fields {
  return headers.map(([name, value]) => toField(name, value));
}

function toField(name: string, secret: Secret): readonly [string, string] {
  const value = secret.expose().toString('latin1');
  if (!FIELD_NAME.test(name)) throw new HeaderProblem(`${JSON.stringify(name)} is no header name`, 'a header name is a token');
  if (!FIELD_VALUE.test(value))
    throw new HeaderProblem(`${name}: the value cannot stand in a header`, 'a value is one line of text');
  return [name, value];
}

async function readAuthorities(file: string | undefined, problems: OtlpProblem[]): Promise<Buffer | undefined> {
  if (file === undefined) return undefined;
  try {
    return await readFile(file);
  } catch (thrown) {
    const code = (thrown as NodeJS.ErrnoException).code ?? 'unknown reason';
    problems.push({ path: 'otlp.caFile', message: `${file} cannot be read (${code})`, hint: 'mount the certificates there' });
    return undefined;
  }
}
