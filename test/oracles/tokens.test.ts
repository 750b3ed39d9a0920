/** The known answers of senders with key pairs and tokens, judged by PyJWT, by cryptography, and by the libraries of Google, Vonage and Apple. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';

interface Stored {
  readonly preset: string;
  readonly source: string;
  readonly verdict: 'ok' | 'refused';
  readonly why?: string;
}

const HERE = import.meta.dirname;
const PYTHON = resolve('.cache/oracles-python/bin/python');
const FILE = join(HERE, '..', 'vectors', 'asymmetric.json');
const vectors = JSON.parse(readFileSync(FILE, 'utf8')) as Stored[];
const lines = vectors.map((vector) => `${JSON.stringify(vector)}\n`).join('');
const SCRIPT = join(HERE, '..', 'support', 'oracles', 'tokens.py');
const { stdout = '' } = existsSync(PYTHON) ? spawnSync(PYTHON, [SCRIPT], { input: lines, encoding: 'utf8' }) : {};
const answers = stdout.trimEnd().split('\n');
/** Apple's library requires the root in the token, which the route has anyway (RFC 7515 §4.1.6). */
const ONLY_HERE = 'the root is absent';

test
  .skipIf(stdout === '')
  .each(vectors.map((vector, index) => ({ ...vector, answer: answers[index], title: vector.why ?? 'as it is' })))(
  '$preset, $source: $title, is $verdict',
  ({ verdict, answer, why = '' }) => {
    expect(answer?.startsWith('true')).toBe(verdict === 'ok' && why !== ONLY_HERE);
  },
);

test.skipIf(stdout === '')('the libraries judged every delivery', () => {
  expect(answers).toHaveLength(vectors.length);
});
