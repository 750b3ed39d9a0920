/** `sidegate probe`: sends valid and forged deliveries to an endpoint, and reports the impact of each failure. */
import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { MAX_CONTENT_BYTES, MAX_PEM_BYTES } from '../config/sources/bounded-read.ts';
import { systemClock } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import { onceEvent, onEvent } from '../core/safe-events.ts';
import { type CountHandled, SEVERITIES } from '../diagnostics/probe/check.ts';
import { createClient, type Fields, findTarget, type ProbeTarget } from '../diagnostics/probe/client.ts';
import { inspectScheme } from '../diagnostics/probe/probed-scheme.ts';
import { hasFailed, type ProbeReport, toJson, toSummary, toText, toXml } from '../diagnostics/probe/report.ts';
import { CHECKS, MAX_PARALLEL, runChecks } from '../diagnostics/probe/run-checks.ts';
import { createSample } from '../diagnostics/probe/sample.ts';
import { systemResolve } from '../http/dial/resolve.ts';
import type { Scheme } from '../verify/schemes/scheme.ts';
import type { EncodedKey } from '../verify/schemes/sign.ts';
import {
  readNamed,
  readSecretOption,
  type SecretArguments,
  toChoice,
  toDuration,
  toEncoding,
  toScheme,
  toTolerance,
} from './input.ts';
import { EXIT, type Io } from './io.ts';

/** Options of the command. */
interface ProbeOptions extends SecretArguments {
  readonly list?: boolean;
  readonly scheme: string;
  readonly only?: readonly string[];
  readonly body?: string;
  readonly header?: readonly string[];
  readonly headerEnv?: readonly string[];
  readonly publicUrl?: string;
  readonly tolerance?: string;
  readonly timeout: string;
  readonly parallel: string;
  readonly count?: string;
  readonly ca?: string;
  readonly insecure?: boolean;
  readonly yesIOwnThis?: string;
  readonly format: string;
  readonly output?: string;
  readonly failOn: string;
}

const FORMATS = ['text', 'json', 'junit'] as const;
type Format = (typeof FORMATS)[number];
/** A field name (RFC 9110 §5.1) and a value without line breaks. */
const FIELD = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\x20-\x7e]*?)[\t ]*$/;
/** Headers that frame the body: changing them would change what a check tests. */
const FRAMING = ['content-length', 'transfer-encoding', 'connection', 'expect'];

/** Runs the checks. */
export async function probeEndpoint(url: string | undefined, options: ProbeOptions, io: Io): Promise<number> {
  if (options.list === true) return listChecks(io);
  if (url === undefined) throw usageError('missing URL of the endpoint (--list shows the checks)');
  const format = toChoice(options.format, FORMATS, '--format');
  const failOn = toChoice(options.failOn, SEVERITIES, '--fail-on');
  const only = toChecks(options.only ?? []);
  const scheme = toScheme(options.scheme);
  const extraFields = toFields(options, scheme, io);
  const timeoutMs = toDuration(options.timeout, '--timeout');
  const tolerance = toTolerance(options.tolerance, scheme);
  const parallel = toParallel(options.parallel);
  const target = await findAllowedTarget(url, options);
  const key: EncodedKey = { secret: await readSecretOption(options), encoding: toEncoding(options.encoding) };
  const ca = options.ca === undefined ? undefined : await readNamed(options.ca, MAX_PEM_BYTES, '--ca');
  const sample = createSample(
    scheme.description,
    options.body === undefined ? undefined : await readNamed(options.body, MAX_CONTENT_BYTES, '--body'),
  );
  const send = createClient(target, { timeoutMs, clock: systemClock, ca, isCertificateChecked: options.insecure !== true });
  const result = await runChecks({
    scheme: inspectScheme(scheme, key, options.publicUrl ?? target.url.href),
    sample,
    key,
    clock: systemClock,
    tolerance,
    extraFields,
    send,
    countHandled: options.count === undefined ? undefined : toCounter(options.count, io),
    target: target.url.href,
    only,
    parallel,
  });
  if ('unreachable' in result) {
    io.stderr(`sidegate: no response from ${target.url.host} (${target.addresses.join(', ')}): ${result.unreachable}\n`);
    return EXIT.usage;
  }
  const text = render(result, format, options.output === undefined && io.isColored === true);
  await write(result, text, { file: options.output, io });
  return hasFailed(result, failOn) ? EXIT.failed : EXIT.ok;
}

function listChecks(io: Io): number {
  const width = Math.max(...CHECKS.map(({ id }) => id.length)) + 2;
  for (const { id, severity, sent, expected } of CHECKS) {
    io.stdout(`${id.padEnd(width)}${severity.padEnd(10)}${sent}: ${expected}\n`);
  }
  return EXIT.ok;
}

function toChecks(given: readonly string[]): string[] {
  const ids = given.flatMap((text) => text.split(',')).map((id) => id.trim());
  const unknown = ids.find((id) => !CHECKS.some((check) => check.id === id));
  if (unknown !== undefined) throw usageError(`--only ${unknown}: unknown check; --list shows all checks`);
  return ids;
}

function toFields({ header = [], headerEnv = [] }: ProbeOptions, scheme: Scheme, io: Io): Fields {
  const fromEnv = headerEnv.map((text) => {
    const [, name = '', variable = ''] = /^([^=]+)=(.+)$/.exec(text) ?? [];
    const value = io.env[variable];
    if (value === undefined)
      throw usageError(`--header-env ${text}: use Name=VARIABLE, with an environment variable that is set`);
    return `${name}: ${value}`;
  });
  return [...header, ...fromEnv].map((line) => {
    const [, name, value = ''] = FIELD.exec(line) ?? [];
    // The line itself is not shown: it may contain a password.
    if (name === undefined) throw usageError("--header: use 'Name: value' in printable ASCII characters");
    if (scheme.headerNames.includes(name.toLowerCase()))
      throw usageError(`--header ${name}: the probe sets this signature header itself`);
    if (FRAMING.includes(name.toLowerCase())) throw usageError(`--header ${name}: the probe sets this header itself`);
    return [name, value] as const;
  });
}

function toParallel(text: string): number {
  if (!/^[1-9]$/.test(text) || Number(text) > MAX_PARALLEL)
    throw usageError(`--parallel ${text} is not an integer from 1 to ${MAX_PARALLEL}`);
  return Number(text);
}

async function findAllowedTarget(url: string, options: ProbeOptions): Promise<ProbeTarget> {
  const target = await findTarget(url, { ownedHost: options.yesIOwnThis, resolve: systemResolve });
  if ('problem' in target) throw usageError(target.problem);
  if (options.insecure === true && !target.isPrivate) {
    throw usageError(
      '--insecure is only for private targets: elsewhere, anyone on the network path could read the deliveries; use --ca FILE',
    );
  }
  return target;
}

/** Runs the user's command with the ID in its environment, so that the shell cannot interpret it as code. */
function toCounter(command: string, io: Io): CountHandled {
  return (id) =>
    new Promise((resolve, reject) => {
      const child = spawn('sh', ['-c', command], { env: { ...io.env, EVENT_ID: id }, stdio: ['ignore', 'pipe', 'inherit'] });
      let text = '';
      onEvent(child.stdout.setEncoding('utf8'), 'data', (chunk: string) => {
        text += chunk;
      });
      onceEvent(child, 'error', reject);
      onceEvent(child, 'close', (code) => {
        const isNumber = /^[0-9]{1,9}$/.test(text.trim());
        if (code === 0 && isNumber) resolve(Number(text.trim()));
        else reject(usageError(`--count: the command must print a number and exit with 0; it exited with ${code}`));
      });
    });
}

function render(report: ProbeReport, format: Format, isColored: boolean): string {
  if (format === 'json') return toJson(report);
  return format === 'junit' ? toXml(report) : toText(report, isColored);
}

async function write(report: ProbeReport, text: string, { file, io }: { file: string | undefined; io: Io }): Promise<void> {
  if (file === undefined) {
    io.stdout(text);
    return;
  }
  try {
    await writeFile(file, text);
    io.stdout(`${toSummary(report)}; written to ${file}\n`);
  } catch (thrown) {
    throw usageError(`cannot write --output ${file} (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'})`);
  }
}
