/** Reads the key that forwarded requests are signed with. */
import type { IdentityConfig } from '../config/schema/config.ts';
import { readSecret } from '../config/sources/secrets.ts';
import type { SourceProblem } from '../config/sources/source-problem.ts';
import { type IdentityKey, parseIdentityKey } from '../gateway/upstream/identity-token.ts';

/** The result of reading the key, which is undefined if there was an error. */
export interface IdentityRead {
  readonly key: IdentityKey | undefined;
  readonly problems: readonly SourceProblem[];
}

const PATH = 'identity.key.secret';

/** Reads the key; undefined if requests are not signed. */
export async function readIdentity(config: IdentityConfig | undefined): Promise<IdentityRead | undefined> {
  if (config === undefined) return undefined;
  const { algorithm, key } = config;
  const read = await readSecret(key.secret);
  if ('problem' in read) return failed(read.problem, read.hint);
  const parsed = parseIdentityKey({ name: key.name, algorithm, encoding: key.secret.encoding }, read.secret);
  if ('problem' in parsed) return failed(parsed.problem, parsed.hint);
  return { key: parsed, problems: read.warnings.map((message) => ({ severity: 'warning', path: PATH, message })) };
}

/** The files to watch. */
export function toIdentityFiles(config: IdentityConfig | undefined): string[] {
  return config !== undefined && 'file' in config.key.secret ? [config.key.secret.file] : [];
}

function failed(message: string, hint: string): IdentityRead {
  return { key: undefined, problems: [{ severity: 'error', path: PATH, message, hint }] };
}
