/** Reads the settings for exporting spans from the config, with OpenTelemetry's environment variables as defaults. */
import { error, type Fault, type Problem, unwrap } from '../../core/problem.ts';
import type { Secret } from '../../core/secret.ts';
import type { TracingConfig } from '../schema/config.ts';
import { readPem } from './bounded-read.ts';
import { type OtelEnv, readOtelEnv } from './otel-env.ts';
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
  const ca = caFile === undefined ? undefined : unwrap(await readPem(caFile), [...PATH, 'caFile'], problems);
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
