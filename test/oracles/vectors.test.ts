import { createHmac, createPublicKey, verify as verifyBytes } from 'node:crypto';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { GO_PARTS, PYTHON_PARTS, type Speaker, startGo, startPython, toForeignOracle } from '../support/oracles/foreign.ts';
import type { Oracle } from '../support/oracles/oracle.ts';
import { readHandshakes, readVectors, type Vector } from '../support/oracles/vectors.ts';
import { askZoom } from '../support/oracles/verifying.ts';
import { oracles } from '../support/oracles.ts';

const python = startPython();
const go = startGo();
/** A library in another language judges by the time of now, so it cannot be asked about these. */
const BY_CLOCK = ['hubspot', 'elevenlabs', 'polar'];
/** Without a verifier of any kind: only what the receiver compares by itself. */
const TOKENS = ['gitlab', 'microsoft-graph'];

afterEach(() => {
  vi.useRealTimers();
});
afterAll(() => {
  python?.stop();
  go?.stop();
});

function findOracle({ preset, signed }: Vector): Oracle | undefined {
  const candidates = oracles.filter((oracle) => oracle.preset === preset);
  return candidates.find(({ form }) => (form === 'json') === signed.url.includes('bodySHA256')) ?? candidates[0];
}

function findVerifier(vector: Vector): Oracle['verify'] {
  const oracle = findOracle(vector);
  if (oracle?.verify) return oracle.verify;
  const speakers: [Speaker | undefined, typeof GO_PARTS][] = [
    [python, PYTHON_PARTS],
    [go, GO_PARTS],
  ];
  for (const [speaker, parts] of speakers) {
    const part = parts.find(({ preset, verifies }) => preset === vector.preset && verifies);
    if (oracle && speaker && part) return toForeignOracle(oracle, speaker, part).verify;
  }
  return undefined;
}

const vectors = readVectors();
const isV1a = ({ secret }: Vector): boolean => secret.text.startsWith('whpk_');
const judged = vectors.filter((vector) => !isV1a(vector) && !BY_CLOCK.includes(vector.preset) && !TOKENS.includes(vector.preset));

describe('a known answer', () => {
  test.each(judged.map((vector) => ({ ...vector, title: `${vector.preset}, ${vector.source}, ${vector.why ?? 'as it is'}` })))(
    'is $verdict for the library that judges it: $title',
    async (vector) => {
      const verify = findVerifier(vector);
      if (!verify) return;
      vi.useFakeTimers({ toFake: ['Date'], now: vector.atEpochSeconds * 1000 });
      expect(await verify(vector.signed, vector.secret)).toBe(vector.verdict === 'ok');
    },
  );

  test.each(oracles.filter(({ preset }) => BY_CLOCK.includes(preset)))(
    "is what the sender's oracle signs at that time: $preset $form",
    async (oracle) => {
      const [known] = vectors.filter(
        ({ preset, secret, verdict }) => preset === oracle.preset && verdict === 'ok' && secret.text === oracle.secret.text,
      );
      const signed = await oracle.sign(oracle.sample((known?.atEpochSeconds ?? 0) * 1000));
      expect(known?.signed).toEqual(signed);
    },
  );

  test('is there for every sender, right and wrong, and published where the sender has published one', () => {
    for (const { preset } of oracles) {
      const own = vectors.filter((vector) => vector.preset === preset);
      expect({ preset, verdicts: [...new Set(own.map(({ verdict }) => verdict))].sort() }).toEqual({
        preset,
        verdicts: ['ok', 'refused'],
      });
    }
    const published = new Set(vectors.filter(({ origin }) => origin === 'published').map(({ preset }) => preset));
    expect([...published].sort()).toEqual(
      [
        'adyen-platforms',
        'github',
        'line',
        'paddle',
        'pagerduty',
        'sanity',
        'sendgrid',
        'slack',
        'square',
        'standard-webhooks',
        'svix',
        'twilio',
      ].sort(),
    );
  });

  test("of Svix's public key holds by ed25519", () => {
    const [vector] = vectors.filter(isV1a);
    const { headers = {}, body = Buffer.alloc(0) } = vector?.signed ?? {};
    const raw = Buffer.from(vector?.secret.text.slice('whpk_'.length) ?? '', 'base64');
    const key = createPublicKey({ format: 'jwk', key: { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') } });
    const content = Buffer.concat([Buffer.from(`${headers['svix-id']}.${headers['svix-timestamp']}.`), body]);
    expect(verifyBytes(null, content, key, Buffer.from(headers['svix-signature']?.slice('v1a,'.length) ?? '', 'base64'))).toBe(
      true,
    );
  });
});

describe('a handshake', () => {
  const handshakes = readHandshakes();

  test("of X is answered by its sample's value", () => {
    const [x] = handshakes.filter(({ preset }) => preset === 'x');
    const token = new URL(x?.signed.url ?? '').searchParams.get('crc_token') ?? '';
    const response = `sha256=${createHmac('sha256', x?.secret.text ?? '')
      .update(token)
      .digest('base64')}`;
    expect(x?.answer).toEqual({ status: 200, json: { response_token: response } });
  });

  test("of Zoom is answered by Zoom's own library", async () => {
    const [zoom] = handshakes.filter(({ preset }) => preset === 'zoom');
    if (!zoom) throw new Error('no handshake of Zoom');
    const { statusCode, body } = await askZoom(zoom.signed.headers, zoom.signed.body, zoom.secret.text);
    expect({ status: statusCode, json: JSON.parse(body) }).toEqual(zoom.answer);
  });
});
