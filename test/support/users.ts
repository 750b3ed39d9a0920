/** Users and their passwords, as tests write and send them. */
import { execFileSync } from 'node:child_process';

/** The entry that Apache's tool writes; bcrypt at its lowest cost, unless said otherwise. */
export function makeEntry(user: string, password: string, flags: readonly string[] = ['-B', '-C', '4']): string {
  return execFileSync('htpasswd', ['-ni', ...flags, user], { input: password, encoding: 'utf8' }).trim();
}

/** The Authorization header of a user. */
export function toBasic(user: string, password: string): { Authorization: string } {
  return { Authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` };
}
