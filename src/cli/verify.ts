/** `sidegate verify`: the gate's judgement of one delivery, step by step, with what would have made it pass. */
import { z } from 'zod';
import { duration } from '../config/scalars.ts';
import { systemClock } from '../core/clock.ts';
import type { SignedHead } from '../core/exchange.ts';
import { HeaderFields } from '../core/headers.ts';
import type { Secret } from '../core/secret.ts';
import type { SecretEncoding } from '../schemes/description.ts';
import type { Scheme } from '../schemes/scheme.ts';
import { readBody, readSecretOption, type SecretOptions, toEncoding, toScheme, toSeconds, usageError } from './input.ts';
import { EXIT, type Io } from './io.ts';

/** Options of the command. */
export interface VerifyOptions extends SecretOptions {
  readonly scheme: string;
  readonly method: string;
  readonly url?: string;
  readonly header: readonly string[];
  readonly tolerance: string;
  readonly at?: string;
}

const ENCODINGS: readonly (SecretEncoding | undefined)[] = [undefined, 'utf8', 'base64', 'hex'];
/** A timestamp beyond this many seconds (year 5138) is in milliseconds. */
const SURELY_MILLISECONDS = 100_000_000_000;

/** What is judged, and by what. */
interface Case {
  readonly scheme: Scheme;
  readonly head: SignedHead;
  readonly method: string;
  readonly url: string;
  readonly secret: Secret;
  readonly encoding: SecretEncoding | undefined;
}

/** Says whether it is genuine and recent, and if not, why. */
export async function verifyDelivery(file: string | undefined, options: VerifyOptions, io: Io): Promise<number> {
  const scheme = toScheme(options.scheme);
  const encoding = toEncoding(options.encoding);
  const tolerance = toTolerance(options.tolerance);
  const now = options.at === undefined ? systemClock.now() : toSeconds(options.at, '--at') * 1000;
  const headers = new HeaderFields(options.header.flatMap(toField));
  if (scheme.signsUrl && options.url === undefined) throw usageError(`${scheme.name} signs the URL: give --url`);
  const secret = await readSecretOption(options);
  const body = await readBody(file, io);

  const head = scheme.readHead(headers, { allowDotInId: false });
  if ('code' in head) return fail(io, `headers: ${head.detail ?? toMissing(scheme)}`, head.code);
  io.stdout(`headers: well-formed, ${head.signatures.length} signature${head.signatures.length === 1 ? '' : 's'}\n`);
  const isRecent = head.timestamp === undefined || explainTimestamp(head.timestamp, now, tolerance, io);
  const { method, url = '' } = options;
  const one: Case = { scheme, head, method, url, secret, encoding };
  if (!matches(one, body)) {
    for (const hint of findHints(one, body)) io.stdout(`hint: ${hint}\n`);
    return fail(io, 'signature: no match with this secret', 'signature_mismatch');
  }
  io.stdout(`signature: match over ${body.length} bytes\n`);
  if (!isRecent) return fail(io, 'the signature is genuine, but the delivery is not recent', 'timestamp_outside_tolerance');
  io.stdout('verdict: genuine\n');
  return EXIT.ok;
}

function toMissing({ headerNames, description }: Scheme): string {
  const needed = [description.id, description.timestamp?.from].flatMap((at) =>
    at !== undefined && 'header' in at ? [at.header] : [],
  );
  const names = [...needed, description.signature?.header].filter((name) => name !== undefined);
  return headerNames.length === 1 ? `${names[0]} is missing` : `${names.slice(0, -1).join(', ')} or ${names.at(-1)} is missing`;
}

function fail(io: Io, text: string, code: string): number {
  io.stdout(`${text}\nverdict: ${code}\n`);
  return EXIT.failed;
}

function toTolerance(text: string): number {
  const parsed = z.object({ tolerance: duration() }).safeParse({ tolerance: text });
  if (!parsed.success) throw usageError(`--tolerance ${text} is no duration such as 5m`);
  return parsed.data.tolerance;
}

function toField(line: string): [string, string] {
  const colon = line.indexOf(':');
  if (colon < 1) throw usageError(`--header ${line}: write 'Name: value'`);
  return [line.slice(0, colon), line.slice(colon + 1).trim()];
}

function explainTimestamp(timestamp: number, now: number, tolerance: number, io: Io): boolean {
  const skew = Math.floor(now / 1000) - Math.floor(timestamp / 1000);
  const isRecent = Math.abs(skew) * 1000 <= tolerance;
  const distance = skew >= 0 ? `${skew} s old` : `${-skew} s ahead`;
  io.stdout(`timestamp: ${distance}, tolerance ${tolerance / 1000} s: ${isRecent ? 'ok' : 'outside'}\n`);
  if (timestamp / 1000 > SURELY_MILLISECONDS) io.stdout('hint: the timestamp looks like milliseconds; this scheme has seconds\n');
  return isRecent;
}

function matches({ scheme, head, method, url, secret, encoding }: Case, body: Buffer): boolean {
  const parsed = scheme.parseKey('given', secret, encoding);
  if ('problem' in parsed) return false;
  return scheme.verify(head, { method, url, body }, [parsed.key]) !== undefined;
}

/** Tries the mistakes that are made most. */
function findHints(one: Case, body: Buffer): string[] {
  const hints: string[] = [];
  const parsed = one.scheme.parseKey('given', one.secret, one.encoding);
  if ('problem' in parsed) hints.push(`${parsed.problem}: ${parsed.hint}`);
  for (const encoding of ENCODINGS) {
    if (encoding !== one.encoding && matches({ ...one, encoding }, body))
      hints.push(`it matches with ${encoding === undefined ? 'no encoding' : `encoding ${encoding}`}`);
  }
  const trimmed = Buffer.from(body.toString('latin1').replace(/[\r\n]+$/, ''), 'latin1');
  if (trimmed.length < body.length && matches(one, trimmed)) hints.push('it matches without the line end after the body');
  if (matches(one, Buffer.concat([body, Buffer.from('\n')]))) hints.push('it matches with a line end after the body');
  if (hints.length === 0)
    hints.push('another secret, or a body that was parsed and written again: only the bytes as received match');
  return hints;
}
