import { createHmac, createPublicKey, verify as verifyBytes } from 'node:crypto';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { commerceOracles } from '../support/oracles/commerce.ts';
import { askDiscord } from '../support/oracles/discord.ts';
import { GO_PARTS, PYTHON_PARTS, type Speaker, startGo, startPython, toForeignOracle } from '../support/oracles/foreign.ts';
import type { Oracle } from '../support/oracles/oracle.ts';
import { askTwitch } from '../support/oracles/twitch.ts';
import { type Handshake, readHandshakes, readVectors, type Vector } from '../support/oracles/vectors.ts';
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
  test.for(judged.map((vector) => ({ ...vector, title: `${vector.preset}, ${vector.source}, ${vector.why ?? 'as it is'}` })))(
    'is $verdict for the library that judges it: $title',
    async (vector, { skip }) => {
      const verify = findVerifier(vector);
      if (!verify) return skip('its library is in a language that is missing here');
      vi.useFakeTimers({ toFake: ['Date'], now: vector.atEpochSeconds * 1000 });
      expect(await verify(vector.signed, vector.secret)).toBe(vector.verdict === 'ok');
    },
  );

  test.each(oracles.filter(({ preset }) => BY_CLOCK.includes(preset)))(
    'equals what the oracle of the sender signs at that time: $preset $form',
    async (oracle) => {
      const [known] = vectors.filter(
        ({ preset, secret, verdict }) => preset === oracle.preset && verdict === 'ok' && secret.text === oracle.secret.text,
      );
      const signed = await oracle.sign(oracle.sample((known?.atEpochSeconds ?? 0) * 1000));
      expect(known?.signed).toEqual(signed);
    },
  );

  test.each(commerceOracles)(
    'of $preset, published or signed in Python, equals what node:crypto signs at that time',
    async (oracle) => {
      const own = vectors.filter(({ preset, verdict }) => preset === oracle.preset && verdict === 'ok');
      const [known] = own.filter(({ secret }) => secret.text === oracle.secret.text);
      // The published times of Revolut and Recurly have milliseconds.
      const { 'revolut-request-timestamp': revolut, 'recurly-signature': recurly } = known?.signed.headers ?? {};
      const ms = revolut ?? recurly?.split(',')[0];
      const signed = await oracle.sign(oracle.sample(ms === undefined ? (known?.atEpochSeconds ?? 0) * 1000 : Number(ms)));
      expect(signed).toEqual(known?.signed);
    },
  );

  test('exists for every sender, valid and invalid, and is a published one if the sender published any', () => {
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
        'adyen-payments',
        'adyen-platforms',
        'bitbucket',
        'circleci',
        'coinbase-commerce',
        'github',
        'gocardless',
        'jira',
        'line',
        'mailgun',
        'mux',
        'onfido',
        'openai',
        'paddle',
        'pagerduty',
        'razorpay',
        'recurly',
        'revolut',
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

  test("of Svix's public key verifies with ed25519", () => {
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

/** What the sender's own library, or a receiver's, answers; undefined where there is none. */
async function ask({ preset, signed, secret, answer }: Handshake): Promise<{ status: number; text: string } | undefined> {
  if (preset === 'discord') return askDiscord(signed, secret.text, answer.status === 204 ? 'events' : 'interactions');
  if (preset === 'twitch') return askTwitch(signed, secret.text, 'webhook_callback_verification');
  if (preset !== 'zoom') return undefined;
  const { statusCode, body } = await askZoom(signed.headers, signed.body, secret.text);
  return { status: statusCode, text: body };
}

describe('a handshake', () => {
  const handshakes = readHandshakes();
  const table = handshakes.map((handshake) => ({ ...handshake, title: `${handshake.preset}, ${handshake.source}` }));
  const inUrl = ({ signed }: Handshake, name: string): string => new URL(signed.url).searchParams.get(name) ?? '';

  test.each(table.filter(({ origin }) => origin === 'sdk'))(
    'gets the same response from a library: $title',
    async (handshake) => {
      const { status, json, text } = handshake.answer;
      const reply = await ask(handshake);
      expect(reply?.status).toBe(status);
      expect(json === undefined ? reply?.text : JSON.parse(reply?.text ?? '')).toEqual(json ?? text);
    },
  );

  test.each(table.filter(({ origin, preset }) => origin === 'sdk' && preset !== 'zoom'))(
    'is rejected by that library without a valid signature: $title',
    async (handshake) => {
      const body = Buffer.concat([handshake.signed.body, Buffer.from(' ')]);
      expect((await ask({ ...handshake, signed: { ...handshake.signed, body } }))?.status).toBeGreaterThanOrEqual(400);
    },
  );

  test('of X gets the value of its sample', () => {
    for (const handshake of handshakes.filter(({ preset }) => preset === 'x')) {
      const mac = createHmac('sha256', handshake.secret.text).update(inUrl(handshake, 'crc_token')).digest('base64');
      expect(handshake.answer).toEqual({ status: 200, json: { response_token: `sha256=${mac}` } });
    }
  });

  test('of Slack is signed like its other requests, and gets the challenge back', async () => {
    for (const { signed, secret, answer, atEpochSeconds } of handshakes.filter(({ preset }) => preset === 'slack')) {
      vi.useFakeTimers({ toFake: ['Date'], now: atEpochSeconds * 1000 });
      expect(await oracles.find(({ preset }) => preset === 'slack')?.verify?.(signed, secret)).toBe(true);
      expect(answer.text).toBe(JSON.parse(signed.body.toString()).challenge);
    }
  });

  test('in the URL gets the decoded challenge back', () => {
    const [meta] = handshakes.filter(({ preset }) => preset === 'meta');
    const [graph] = handshakes.filter(({ preset }) => preset === 'microsoft-graph');
    if (!meta || !graph) throw new Error('no handshake of Meta or Microsoft Graph');
    expect(meta.answer.text).toBe(inUrl(meta, 'hub.challenge'));
    expect(meta.secret.text).toBe(inUrl(meta, 'hub.verify_token'));
    expect(graph.answer.text).toBe(inUrl(graph, 'validationToken'));
  });
});
