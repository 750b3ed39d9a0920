/** What an analysis may never do: show a secret, throw, or cost more than its budget. */
import { createHmac } from 'node:crypto';
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { explainNow } from '../../../../src/cli/verify.ts';
import { HeaderFields } from '../../../../src/core/head.ts';
import { Secret } from '../../../../src/core/secret.ts';
import {
  type AnalysisBudget,
  type AnalysisInput,
  type CandidateKey,
  DEFAULT_BUDGET,
  Meter,
  toCandidateKey,
} from '../../../../src/diagnostics/explain/analysis.ts';
import { findPreset, PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { fc } from '../../../support/property.ts';

const NOW = 1_800_000_000_000;

function toAnalysisInput(preset: string, headers: readonly string[], body: Buffer, keys: readonly CandidateKey[]): AnalysisInput {
  const scheme = compileScheme(findPreset(preset) as SchemeDescription);
  return {
    request: { method: 'POST', target: '/hooks?token=x', headers: new HeaderFields(headers), body, receivedAt: NOW },
    scheme,
    allowDotInId: false,
    tolerance: scheme.description.tolerance,
    publicUrl: '',
    keys,
    others: keys.map((key) => ({ ...key, route: 'other' })),
    presets: PRESETS,
    compile: compileScheme,
  };
}

function toKey(text: string): CandidateKey {
  return { route: 'billing', name: 'current', secret: new Secret(Buffer.from(text)), encoding: undefined };
}

/** Every text that a secret could be told from. */
function toSpellings(text: string): string[] {
  const bytes = Buffer.from(text);
  const decoded = Buffer.from(text.replace(/^whsec_/, ''), 'base64');
  const both = [bytes, decoded].flatMap((each) => [
    each.toString('hex'),
    each.toString('base64').replace(/=+$/, ''),
    each.toString('latin1'),
  ]);
  return [text, text.replace(/^whsec_/, ''), ...both].filter((each) => each.length >= 8);
}

const secretText = fc.oneof(
  fc.uint8Array({ minLength: 24, maxLength: 40 }).map((bytes) => `whsec_${Buffer.from(bytes).toString('base64')}`),
  fc.uint8Array({ minLength: 16, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('hex')),
  fc.string({ minLength: 12, maxLength: 40 }).filter((text) => text.trim().length >= 12 && new Set(text).size > 6),
  fc.uint8Array({ minLength: 16, maxLength: 32 }).map((bytes) => `"${Buffer.from(bytes).toString('base64')}" `),
);
const how = fc.constantFrom('utf8', 'base64', 'hex', 'other' as const);

function github(key: Buffer, body: Buffer): string[] {
  return ['X-Hub-Signature-256', `sha256=${createHmac('sha256', key).update(body).digest('hex')}`];
}

describe('an explanation', () => {
  test('never contains a secret in any encoding, whether it matches or not', () => {
    const proven = new Set<boolean>();
    fc.assert(
      fc.property(secretText, how, fc.boolean(), (text, encoding, isEnded) => {
        const clean = text.replace(/^whsec_/, '');
        const key = Buffer.from(
          encoding === 'other' ? 'other' : clean,
          encoding === 'other' ? 'utf8' : (encoding as BufferEncoding),
        );
        const body = Buffer.from('{"a":1}');
        const headers = github(key, isEnded ? Buffer.from('{"a":1}\n') : body);
        for (const preset of ['github', 'standard-webhooks']) {
          const analysisInput = toAnalysisInput(preset, headers, body, [toKey(text)]);
          const explanation = explainNow(analysisInput, new Meter(DEFAULT_BUDGET));
          proven.add(explanation.isProven);
          const shown = `${JSON.stringify(explanation)}\n${inspect(explanation, { depth: 10 })}\n${inspect(analysisInput, { depth: 10 })}`;
          for (const spelling of toSpellings(text)) expect(shown).not.toContain(spelling);
        }
      }),
      { numRuns: 60 },
    );
    expect(proven).toEqual(new Set([true, false]));
  });

  test('shows nothing of the headers, the target or the body of an untrusted client', () => {
    const mark = 'canary-7f3a';
    const headers = [
      'Webhook-Id',
      mark,
      'Webhook-Timestamp',
      `17${mark}`,
      'Webhook-Signature',
      `v1,${mark}`,
      `X-${mark}-Signature`,
      mark,
      'Host',
      `${mark} x`,
    ];
    for (const preset of ['standard-webhooks', 'svix', 'github', 'bearer']) {
      const found = explainNow(
        toAnalysisInput(preset, [...headers, 'Authorization', mark], Buffer.from(mark), [toKey('x'.repeat(32))]),
        new Meter(DEFAULT_BUDGET),
      );
      expect(JSON.stringify(found)).not.toContain(mark);
      expect(found.findings.length).toBeGreaterThan(0);
    }
  });

  test('is produced for any input, without an exception', () => {
    const names = fc.constantFrom(
      'Webhook-Id',
      'Webhook-Timestamp',
      'Webhook-Signature',
      'Svix-Signature',
      'X-Hub-Signature-256',
      'X-Hub-Signature',
      'Authorization',
      'Host',
      'X-Forwarded-Host',
      'Forwarded',
      'Content-Encoding',
    );
    const values = fc.oneof(
      fc.string({ maxLength: 80 }),
      fc.constantFrom(
        'v1,',
        'sha256=',
        '1800000000',
        '1800000000000',
        `v1,${'A'.repeat(43)}=`,
        'a'.repeat(64),
        'host="["',
        '[::',
        '%zz',
      ),
    );
    const bodies = fc.oneof(
      fc.uint8Array({ maxLength: 64 }),
      fc.json().map((text) => Buffer.from(text)),
      fc.constantFrom(Buffer.from('payload=%E0%A4%A'), Buffer.from('"\\ud800"'), Buffer.from(' [ ')),
    );
    fc.assert(
      fc.property(
        fc.constantFrom('standard-webhooks', 'svix', 'github', 'bearer'),
        fc.array(fc.tuple(names, values), { maxLength: 8 }),
        bodies,
        (preset, headers, body) => {
          const analysisInput = toAnalysisInput(preset, headers.flat(), Buffer.from(body), [toKey(`whsec_${'A'.repeat(32)}`)]);
          expect(explainNow(analysisInput, new Meter(DEFAULT_BUDGET)).findings.length).toBeGreaterThan(0);
        },
      ),
      { numRuns: 150 },
    );
  });
});

describe('the budget', () => {
  const large = Buffer.from(JSON.stringify({ list: Array.from({ length: 20_000 }, (_, i) => `é/${i}`) }));
  const stranger = (body: Buffer, budget: AnalysisBudget): [Meter, string] => {
    const meter = new Meter(budget);
    const { findings } = explainNow(
      toAnalysisInput('github', github(Buffer.from('stranger'), Buffer.from('x')), body, [toKey('a secret of mine')]),
      meter,
    );
    return [meter, JSON.stringify(findings)];
  };

  test('limits the bytes that are hashed and rewritten, and reports when it is used up', () => {
    const [meter, text] = stranger(large, { bytes: 4 * 1024 * 1024, candidates: 2_000 });
    expect(meter.bytes).toBeGreaterThan(3 * 1024 * 1024);
    expect(meter.bytes).toBeLessThanOrEqual(4 * 1024 * 1024);
    expect(text).toContain('the budget of the analysis was used up');
  });

  test('limits the combinations that are tried', () => {
    const [meter] = stranger(Buffer.from('{"a":"é/"}'), { bytes: DEFAULT_BUDGET.bytes, candidates: 50 });
    expect([meter.candidates, meter.isExceeded]).toEqual([50, true]);
  });

  test('is sufficient for all candidates of a typical body', () => {
    const [meter] = stranger(Buffer.from(JSON.stringify({ text: 'é/<'.repeat(1_000) })), DEFAULT_BUDGET);
    expect(meter.isExceeded).toBe(false);
  });

  test('is sufficient to find what a proxy changed in a body of the maximum size', () => {
    const value = { list: Array.from({ length: 6_000 }, (_, i) => ({ id: i, text: `é/${i}/${'y'.repeat(20)}` })) };
    const body = Buffer.from(JSON.stringify(value));
    expect(body.length).toBeGreaterThan(256_000);
    const secret = 'a secret of mine';
    for (const indent of [undefined, 2, '\t']) {
      const signed = Buffer.from(indent === undefined ? `${body}\n` : JSON.stringify(value, null, indent));
      const analysisInput = toAnalysisInput('github', github(Buffer.from(secret), signed), body, [toKey(secret)]);
      expect(explainNow(analysisInput, new Meter(DEFAULT_BUDGET)).isProven).toBe(true);
    }
  });

  test('is not used up by bodies that are made to grow', () => {
    for (const body of [
      Buffer.from('['.repeat(50_000) + ']'.repeat(50_000)),
      Buffer.from('/'.repeat(100_000)),
      Buffer.from('\n'.repeat(100_000)),
    ]) {
      const [meter] = stranger(body, DEFAULT_BUDGET);
      expect(meter.isExceeded).toBe(false);
    }
  });
});

test('a key includes its text, which is never printed', () => {
  const text = `whsec_${Buffer.from('this is the secret text!').toString('base64')}`;
  const parsed = compileScheme(findPreset('standard-webhooks') as SchemeDescription).parseKey(
    'k',
    new Secret(Buffer.from(text)),
    undefined,
  );
  if (!('key' in parsed)) throw new Error(parsed.problem);
  expect(toCandidateKey('billing', parsed.key)?.secret.expose().toString()).toBe(text);
  for (const shown of [
    inspect(parsed, { depth: 10, showHidden: true }),
    JSON.stringify(parsed),
    JSON.stringify(toCandidateKey('billing', parsed.key)),
  ])
    for (const spelling of toSpellings(text)) expect(shown).not.toContain(spelling);
  expect(toCandidateKey('billing', { name: 'k', material: {}, notAfter: undefined })).toBeUndefined();
});
