/** Files of users. */
import { parseHtpasswd } from '../../../src/users/user-set.ts';
import type { Target } from '../guided.ts';
import { expectEqual } from './expect-equal.ts';

const BCRYPT = '$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC';
const APR1 = '$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00';
const SHA256 = '$5$rounds=2000$saltsalt$RbW2xPl1wuYvzqLrJ8rpvAvQMFCxM/P.FyC2nNM8pS1';
const ARGON2 = '$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzb21l$MWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE';

/** A user is in the result at most twice, never if one of the lines has a problem, and its line is the one that is used. */
export const HTPASSWD: Target = {
  name: 'htpasswd',
  seeds: [
    `alice:${BCRYPT}\nbob:${APR1}\n# comment\n\ncarol:${SHA256}\r\n`,
    `alice:${BCRYPT}\nalice:${APR1}\n`,
    `dave:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\nerin:${ARGON2}\n`,
    'frank:plain text\nheidi:\n:x\nno colon\n',
  ].map((text) => Buffer.from(text)),
  pieces: [
    ...[
      '\n',
      '\r\n',
      '\r',
      ':',
      '#',
      ' ',
      '\t',
      '\0',
      '$',
      '$2y$05$',
      '$2y$31$',
      '$apr1$',
      '$5$',
      '$6$rounds=999999999$',
      '{SHA}',
      'alice:',
    ],
    ...[
      'rounds=',
      'm=99999999',
      't=0',
      'p=0',
      '$argon2id$v=19$',
      '=',
      '\ufeff',
      'é',
      'e\u0301',
      '\u2028',
      BCRYPT,
      APR1,
      SHA256,
      ARGON2,
    ],
  ].map((piece) => Buffer.from(piece).toString('latin1')),
  check(input) {
    const text = new TextDecoder().decode(input);
    const lines = text.split('\n');
    for (const allowPlainText of [false, true]) {
      const { entries, problems, problemCount, rejected } = parseHtpasswd(text, { allowPlainText });
      if (problemCount < problems.length || problems.length > 20)
        throw new Error(`${problems.length} of ${problemCount} problems`);
      const counts = new Map<string, number>();
      for (const { user, hash, line } of entries) {
        if (rejected.has(user)) throw new Error(`${JSON.stringify(user)} is accepted and rejected`);
        counts.set(user, (counts.get(user) ?? 0) + 1);
        const written = lines[line - 1] ?? '';
        const content = (line === 1 ? written.replace(/^\ufeff/, '') : written).trimStart();
        const colon = content.indexOf(':');
        expectEqual('the user', user, content.slice(0, colon).normalize('NFC'));
        const stored = content.slice(colon + 1).trimEnd();
        // Further fields are ignored, except behind a password in plain text, which may contain colons.
        const isPlain = hash.algorithm === 'plain';
        const expected = isPlain ? stored.replace(/^\{PLAIN\}/, '') : (stored.split(':')[0] ?? '').trimEnd();
        expectEqual('the hash', hash.text, expected);
        if (hash.memory > 256 * 1_048_576) throw new Error(`a check would allocate ${hash.memory} bytes`);
      }
      if ([...counts.values()].some((count) => count > 2)) throw new Error('a user with three passwords');
      for (const { problem, hint, line } of problems)
        if (problem === '' || hint === '' || line > lines.length) throw new Error(`line ${line}: ${problem}, ${hint}`);
      for (const { problem, hint } of problems)
        if (`${problem}${hint}`.includes(BCRYPT.slice(7)) || `${problem}${hint}`.includes(SHA256.slice(24)))
          throw new Error('a hash is shown');
    }
  },
};
