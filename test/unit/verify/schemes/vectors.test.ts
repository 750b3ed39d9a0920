import { describe, expect, test } from 'vitest';
import { Secret } from '../../../../src/core/secret.ts';
import { checkRecency } from '../../../../src/gateway/pipeline/gates/signature.ts';
import { findPreset, PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { toConfirming } from '../../../support/confirming.ts';
import { readSigned } from '../../../support/field-cases.ts';
import { readVectors, type Vector } from '../../../support/oracles/vectors.ts';

const VECTORS = readVectors();

/** `ok`, or what refused it. */
function judge(description: SchemeDescription, { secret, signed, atEpochSeconds }: Vector): string {
  const scheme = compileScheme(description);
  const parsed = scheme.parseKey('k', new Secret(Buffer.from(secret.text)), secret.encoding);
  if ('problem' in parsed) throw new Error(parsed.problem);
  const head = readSigned(scheme, { ...signed, headers: Object.entries(signed.headers) });
  if ('code' in head) return head.code;
  if (scheme.verify(head, signed, [parsed.key]) === undefined) return 'mismatch';
  const identity = scheme.identify(head, signed);
  if ('problem' in identity) return identity.problem;
  const { tolerance, timestamp } = description;
  if (timestamp === undefined || identity.timestamp === undefined) return 'ok';
  return checkRecency(identity.timestamp, atEpochSeconds * 1000, { tolerance, onSkew: () => undefined })?.code ?? 'ok';
}

describe('a known answer', () => {
  const cases = VECTORS.flatMap((vector) => {
    const description = findPreset(vector.preset);
    return description === undefined ? [] : [{ vector, description, title: `${vector.preset}: ${vector.source}` }];
  });

  test.each(cases.filter(({ vector }) => vector.verdict === 'ok'))('is accepted: $title', ({ vector, description }) => {
    expect(judge(description, vector)).toBe('ok');
  });

  test.each(cases.filter(({ vector }) => vector.verdict === 'refused'))(
    'is rejected if $vector.why: $title',
    ({ vector, description }) => {
      expect(judge(description, vector)).not.toBe('ok');
    },
  );

  test('is never skipped: each is of a preset', () => {
    expect(VECTORS.map(({ preset }) => preset).filter((preset) => findPreset(preset) === undefined)).toEqual([]);
  });
});

describe('the catalogue', () => {
  const named = PRESETS.filter(({ from }) => from !== undefined).map((description) => ({ description, name: description.name }));

  test.each(named)('has $name, confirmed by its sender or an independent signer', ({ description }) => {
    expect(toConfirming(description)).not.toEqual([]);
  });

  test('has no name twice, in any case', () => {
    const names = PRESETS.map(({ name }) => name.toLowerCase());
    expect(new Set(names).size).toBe(names.length);
  });
});
