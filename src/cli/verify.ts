/** `sidegate verify`: verifies a signed delivery, and explains why it fails. */

import { systemClock } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import { HeaderFields } from '../core/headers.ts';
import type { Secret } from '../core/secret.ts';
import { splitUrl } from '../diagnostics/captured/captured.ts';
import type { AnalysisInput, CandidateKey } from '../diagnostics/explain/analysis.ts';
import { PRESETS } from '../verify/presets/catalogue.ts';
import { compileScheme } from '../verify/schemes/compile.ts';
import type { SecretEncoding } from '../verify/schemes/description.ts';
import type { Scheme } from '../verify/schemes/scheme.ts';
import { readBody, toSeconds, toTolerance } from './input.ts';
import { EXIT, type Io } from './io.ts';
import {
  hasSecretOption,
  readRouteKeys,
  readSender,
  readSigningSecret,
  type SenderOptions,
  type SigningSender,
  toSignedUrl,
} from './sender.ts';
import { formatVerification, verifyStepwise } from './verification.ts';

/** Options of the command. */
interface VerifyOptions extends SenderOptions {
  readonly method: string;
  readonly publicUrl?: string;
  readonly header: readonly string[];
  readonly tolerance?: string;
  readonly at?: string;
}

/** Exits with 0 if the delivery is valid. */
export async function verifyDelivery(file: string | undefined, options: VerifyOptions, io: Io): Promise<number> {
  const sender = await readSender(options);
  const { scheme, allowDotInId } = sender;
  const tolerance = options.tolerance === undefined ? sender.tolerance : toTolerance(options.tolerance, scheme);
  const receivedAt = options.at === undefined ? systemClock.now() : toSeconds(options.at, '--at') * 1000;
  const headers = new HeaderFields(options.header.flatMap(toField));
  const { origin = '', target } = splitUrl(toSignedUrl(sender, options.publicUrl) || '/');
  const { keys, others } = await readKeysOf(sender, options, io);
  const body = await readBody(file, io);
  const analysisInput: AnalysisInput = {
    request: { method: options.method, target, headers, body, receivedAt },
    scheme,
    allowDotInId,
    tolerance,
    publicUrl: origin,
    keys,
    others,
    presets: PRESETS,
    compile: compileScheme,
  };
  const verification = await verifyStepwise(analysisInput);
  io.stdout(formatVerification(verification, io));
  return verification.result === 'valid' ? EXIT.ok : EXIT.failed;
}

/** The keys of the route, or the one of the command line. */
async function readKeysOf(
  sender: SigningSender,
  options: VerifyOptions,
  io: Io,
): Promise<Pick<AnalysisInput, 'keys' | 'others'>> {
  if (sender.source === undefined || hasSecretOption(options)) {
    const { secret, encoding } = await readSigningSecret(sender, options);
    return { keys: [toGivenKey(sender.scheme, secret, encoding, io)], others: [] };
  }
  if (options.encoding !== undefined) throw usageError('--encoding requires --secret-env or --secret-file');
  const { notes, ...found } = await readRouteKeys(sender.source.config, sender.source.route);
  for (const note of notes) io.stdout(`note: ${note}\n`);
  for (const { name } of sender.source.webhook.jwks)
    io.stdout(`note: the key set ${name} is not fetched; to use one of its keys, name it by --secret-file\n`);
  return found;
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
