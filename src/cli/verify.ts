/** `sidegate verify`: verifies a signed delivery, and explains why it fails. */

import { PRESETS } from '../auth/schemes/catalogue.ts';
import type { SecretEncoding } from '../auth/schemes/description.ts';
import type { Scheme } from '../auth/schemes/scheme.ts';
import { systemClock } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import { HeaderFields } from '../core/headers.ts';
import type { Secret } from '../core/secret.ts';
import { splitUrl } from '../diagnostics/captured/captured.ts';
import type { AnalysisInput, CandidateKey } from '../diagnostics/explain/analysis.ts';
import {
  readBody,
  readSecretOption,
  requireSignature,
  type SecretOptions,
  toEncoding,
  toScheme,
  toSeconds,
  toTolerance,
} from './input.ts';
import { EXIT, type Io } from './io.ts';
import { formatVerification, verifyStepwise } from './verification.ts';

/** Options of the command. */
export interface VerifyOptions extends SecretOptions {
  readonly scheme: string;
  readonly method: string;
  readonly publicUrl?: string;
  readonly header: readonly string[];
  readonly tolerance?: string;
  readonly at?: string;
}

/** Exits with 0 if the delivery is valid. */
export async function verifyDelivery(file: string | undefined, options: VerifyOptions, io: Io): Promise<number> {
  const scheme = toScheme(options.scheme);
  const encoding = toEncoding(options.encoding);
  const tolerance = toTolerance(options.tolerance, scheme);
  requireSignature(scheme);
  const receivedAt = options.at === undefined ? systemClock.now() : toSeconds(options.at, '--at') * 1000;
  const headers = new HeaderFields(options.header.flatMap(toField));
  if (scheme.signsUrl && options.publicUrl === undefined) throw usageError(`${scheme.name} signs the URL: use --public-url`);
  const secret = await readSecretOption(options);
  const body = await readBody(file, io);
  const { origin = '', target } = splitUrl(options.publicUrl ?? '/');
  const analysisInput: AnalysisInput = {
    request: { method: options.method, target, headers, body, receivedAt },
    scheme,
    allowDotInId: false,
    tolerance,
    publicUrl: origin,
    keys: [toGivenKey(scheme, secret, encoding, io)],
    others: [],
    presets: PRESETS,
  };
  const verification = verifyStepwise(analysisInput);
  io.stdout(formatVerification(verification, io));
  return verification.result === 'valid' ? EXIT.ok : EXIT.failed;
}

/** The key of the command line. If the scheme cannot parse it, the analysis tries other decodings. */
export function toGivenKey(scheme: Scheme, secret: Secret, encoding: SecretEncoding | undefined, io: Io): CandidateKey {
  const parsed = scheme.parseKey('given', secret, encoding);
  const key = { route: '', name: 'given', secret, encoding };
  if ('key' in parsed) return { ...key, key: parsed.key };
  io.stdout(`hint: ${parsed.problem}: ${parsed.hint}\n`);
  return key;
}

function toField(line: string): [string, string] {
  const colon = line.indexOf(':');
  if (colon < 1) throw usageError(`--header ${line}: use 'Name: value'`);
  return [line.slice(0, colon), line.slice(colon + 1).trim()];
}
