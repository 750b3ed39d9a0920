/** Writes renewed OIDC tokens to their kubeconfig, like kubectl, because the provider may revoke the old refresh token. */
import { randomUUID } from 'node:crypto';
import { open, realpath, rename, rm, stat } from 'node:fs/promises';
import { isMap, isScalar, isSeq, parseDocument, type Scalar } from 'yaml';
import { MAX_PEM_BYTES, readRegularFile } from '../../config/sources/bounded-read.ts';
import type { OidcTokens } from './kube-oidc.ts';

/** Where the tokens are. */
interface TokenPlace {
  readonly file: string;
  /** The name of the user's entry. */
  readonly user: string;
}

interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** Replaces the values in place and leaves every other byte as it is. Rejects if the file cannot be read or written, or has no such values. */
export async function saveTokens({ file, user }: TokenPlace, { idToken, refreshToken }: OidcTokens): Promise<void> {
  const target = await realpath(file);
  await withLock(`${file}.lock`, async () => {
    const before = (await readRegularFile(target, MAX_PEM_BYTES)).toString('utf8');
    const after = replaceTokens(before, user, { 'id-token': toText(idToken), 'refresh-token': toText(refreshToken) });
    await replaceFile(target, after);
  });
}

/** Uses the same lock as client-go: the process that creates the lock file may write the kubeconfig. */
async function withLock(lock: string, write: () => Promise<void>): Promise<void> {
  const handle = await open(lock, 'wx', 0o600);
  try {
    await handle.close();
    await write();
  } finally {
    await rm(lock, { force: true });
  }
}

/** Keeps owner and mode, because root may run the doctor with the kubeconfig of another user. */
async function replaceFile(target: string, text: string): Promise<void> {
  const { mode, uid, gid } = await stat(target);
  const temporary = `${target}.${randomUUID()}`;
  try {
    const handle = await open(temporary, 'wx', mode & 0o777);
    try {
      await handle.chown(uid, gid);
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, target);
  } finally {
    await rm(temporary, { force: true });
  }
}

function replaceTokens(text: string, user: string, values: Readonly<Record<string, string>>): string {
  const edits: Edit[] = [];
  for (const [name, value] of Object.entries(values)) {
    const node = findToken(text, user, name);
    // Missing values are not added: without an ID token, kubectl gets one with the refresh token.
    if (node?.range) edits.push({ start: node.range[0], end: node.range[1], text: JSON.stringify(value) });
    else if (name === 'refresh-token') throw new Error('the kubeconfig has no such refresh-token');
  }
  const after = edits
    .toSorted((a, b) => b.start - a.start)
    .reduce((changed, edit) => changed.slice(0, edit.start) + edit.text + changed.slice(edit.end), text);
  // YAML values can span several lines, so the result is parsed again.
  if (edits.length === 0 || findToken(after, user, 'refresh-token')?.value !== values['refresh-token'])
    throw new Error('the kubeconfig would no longer be valid YAML');
  return after;
}

function findToken(text: string, user: string, name: string): Scalar | undefined {
  // The kubeconfig was parsed before, which rejects duplicate keys.
  const document = parseDocument(text, { uniqueKeys: false, logLevel: 'error' });
  const users = document.get('users');
  const entries = document.errors.length === 0 && isSeq(users) ? users.items : [];
  const entry = entries.find((each) => isMap(each) && each.get('name') === user);
  const node = isMap(entry) ? entry.getIn(['user', 'auth-provider', 'config', name], true) : undefined;
  return isScalar(node) ? node : undefined;
}

function toText(secret: OidcTokens['idToken']): string {
  return secret.expose().toString();
}
