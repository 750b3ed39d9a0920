import { generateKeyPairSync } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../../src/core/head.ts';
import { Refusal } from '../../../../../src/core/refusal.ts';
import type { ParsedHead } from '../../../../../src/core/request.ts';
import { createSignatureGate } from '../../../../../src/gateway/pipeline/gates/signature.ts';
import { compileScheme } from '../../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../../src/verify/schemes/description.ts';
import { KeyRing } from '../../../../../src/verify/schemes/keys.ts';
import { makeToken, RSA_PAIR, toKeys, toPem } from '../../../../support/tokens.ts';

const AT = 1_800_000_000_000;
const NEW_PAIR = generateKeyPairSync('rsa', { modulusLength: 2048 });

function toScheme(content: '$' | undefined): SchemeDescription {
  return {
    name: 'custom',
    signature: { header: 'X-Token', encoding: 'jwt', forms: [{ prefix: '', algorithm: 'rsa-sha256' }] },
    signed: content === undefined ? [] : ['body'],
    separator: '',
    id: { claim: '$.jti' },
    secret: { encoding: 'utf8' },
    publicKey: { encoding: 'base64', format: 'spki' },
    tolerance: { past: 300_000, future: 300_000 },
    contentTypes: ['application/json'],
    jwt: content === undefined ? {} : { content },
  };
}

describe.each([
  ['header', undefined],
  ['body', '$'],
] as const)('a token in the %s, while the keys of the route change,', (_place, content) => {
  const description = toScheme(content);
  const [oldKeys, newKeys] = [RSA_PAIR, NEW_PAIR].map(({ publicKey }) => toKeys(description, toPem(publicKey)));

  /** What deliveries with these tokens get. The keys change once they have all arrived, or after they were read for the `atRead`th time. */
  async function deliver(pairs: readonly (typeof RSA_PAIR)[], after = newKeys, atRead = 0): Promise<string[]> {
    const ring = new KeyRing({ keys: oldKeys ?? [], unavailable: [] });
    const live = ring.live.bind(ring);
    let reads = 0;
    ring.live = (at) => {
      const keys = live(at);
      if (++reads === atRead) ring.replace({ keys: after ?? [], unavailable: [] });
      return keys;
    };
    const options = { tolerance: undefined, onSkew: () => undefined, onKeyUsed: () => undefined };
    const scheme = compileScheme(description);
    const gate = createSignatureGate(scheme, ring, { ...options, allowDotInId: false, maxBody: 100_000, publicUrl: '' });
    const decided = pairs.map(({ privateKey }, index) => {
      const token = makeToken({ alg: 'RS256' }, { jti: `id-${index}` }, privateKey);
      const headers = new HeaderFields(content === undefined ? ['X-Token', token] : []);
      const head = { method: 'POST', target: { raw: '/' }, headers, receivedAt: AT } as unknown as ParsedHead;
      const decide = gate.check(head);
      if (decide instanceof Refusal) throw new Error(decide.code);
      return decide(Buffer.from(content === undefined ? '{}' : token), { user: undefined, certificateName: undefined });
    });
    if (atRead === 0) ring.replace({ keys: after ?? [], unavailable: [] });
    return (await Promise.all(decided)).map((each) => (each instanceof Refusal ? each.code : (each.id ?? '')));
  }

  test('is accepted if its key arrives meanwhile', async () => {
    expect(await deliver([NEW_PAIR, NEW_PAIR, NEW_PAIR])).toEqual(['id-0', 'id-1', 'id-2']);
  });

  test('is accepted if its key arrives after the others were tried', async () => {
    expect(await deliver([NEW_PAIR], newKeys, 3)).toEqual(['id-0']);
  });

  test('is rejected if no key that the route then has signed it', async () => {
    const other = generateKeyPairSync('rsa', { modulusLength: 2048 });
    expect(await deliver([other])).toEqual(['signature_mismatch']);
    expect(await deliver([RSA_PAIR, RSA_PAIR])).toEqual(['signature_mismatch', 'signature_mismatch']);
    expect(await deliver([RSA_PAIR], [])).toEqual(['secret_unavailable']);
  });
});
