/** The known answers of senders that sign with key pairs and tokens. */
import { describe, expect, test } from 'vitest';
import { findPreset, PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { readAsymmetricVectors, type Vector } from '../../../support/oracles/vectors.ts';
import { judgeToken, withSettings } from '../../../support/tokens.ts';

const VECTORS = readAsymmetricVectors().map((vector) => ({ ...vector, title: `${vector.preset}: ${vector.source}` }));

function judge(vector: Vector): Promise<string> {
  const { preset, secret, signed, atEpochSeconds } = vector;
  const base = findPreset(preset);
  if (base === undefined) throw new Error(`no preset ${preset}`);
  const { headers, body } = signed;
  return judgeToken(withSettings(base, vector), { secret: secret.text, headers, body, at: atEpochSeconds * 1_000 });
}

describe('a known answer', () => {
  test.each(VECTORS.filter(({ verdict }) => verdict === 'ok'))('is accepted: $title', async (vector) => {
    expect(await judge(vector)).toMatch(/^ok/);
  });

  test.each(VECTORS.filter(({ verdict }) => verdict === 'refused'))('is rejected if $why: $title', async (vector) => {
    expect(await judge(vector)).not.toMatch(/^ok/);
  });

  test('exists for every preset with a token or an RSA key', () => {
    const isAsymmetric = PRESETS.filter(
      ({ signature, jwt }) => jwt !== undefined || signature?.forms.some(({ algorithm }) => algorithm.startsWith('rsa')) === true,
    );
    const known = new Set(VECTORS.map(({ preset }) => preset));
    expect(isAsymmetric.map(({ name }) => name).filter((name) => !known.has(name))).toEqual([]);
  });
});
