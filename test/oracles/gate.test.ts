/** Every sender, signing by its own library where it has one, through a real gate to a real app. */
import { describe, expect, test } from 'vitest';
import { findPreset } from '../../src/verify/presets/catalogue.ts';
import { type Answer, send } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute } from '../support/gate.ts';
import { changeBody } from '../support/oracles/mutations.ts';
import type { Oracle, SignedDelivery } from '../support/oracles/oracle.ts';
import { oracles, toTitle } from '../support/oracles.ts';

const PUBLIC_URL = 'https://hooks.example.com';

const shipped = oracles
  .filter(({ preset }) => findPreset(preset) !== undefined)
  .map((oracle) => ({ oracle, title: toTitle(oracle) }));
const app = useApp();

function start({ preset, secret: { text, encoding } }: Oracle): Promise<TestGate> {
  const { signed, id, repeatsBytes } = findPreset(preset) ?? {};
  const signsUrl = signed?.includes('url') === true;
  // A token alone tells no repeat from another event, so the config of such a route must name an ID.
  const lacksId = signed?.length === 0 && id === undefined;
  const keys = [{ name: 'current', secret: { file: 'secret', ...(encoding && { encoding }) } }];
  const ownId = lacksId && { id: { json: '$.data.id' } };
  // Such a route must say how repeated bytes are treated.
  const dedup = repeatsBytes === true && id === undefined && { dedup: { retention: '10m' } };
  const webhook = { scheme: preset, keys, ...ownId, ...dedup, ...(signsUrl && { publicUrl: PUBLIC_URL }) };
  const route = toRoute(app.port, { match: { path: `/${preset}` }, webhook });
  return startGate({ routes: [route] }, undefined, { secret: text });
}

function deliver(gate: TestGate, { url, headers, body }: SignedDelivery): Promise<Answer> {
  return send(gate.port, { path: url.slice(PUBLIC_URL.length), headers: { ...headers }, body });
}

/** The delivery under an id that nobody signed. */
function rename(signed: SignedDelivery, id: string): SignedDelivery {
  const headers = Object.entries(signed.headers).map(([name, value]) => [name, value === id ? 'another' : value]);
  return { ...signed, headers: Object.fromEntries(headers) };
}

/** Changed where the sender's signature must notice; a token says nothing of the content, so there the token is. */
function forge(oracle: Oracle, signed: SignedDelivery): SignedDelivery {
  if (oracle.covers.body) return { ...signed, body: changeBody(signed) };
  const headers = Object.entries(signed.headers).map(([name, value]) => [
    name,
    value === oracle.secret.text ? oracle.otherSecret.text : value,
  ]);
  const body = Buffer.from(signed.body.toString().replace(oracle.secret.text, oracle.otherSecret.text));
  return { ...signed, headers: Object.fromEntries(headers), body };
}

describe.each(shipped)('$title', ({ oracle }) => {
  test('reaches the app unchanged and once: not if forged, repeated or under another ID', async () => {
    const gate = await start(oracle);
    const delivery = oracle.sample(Date.now());
    const signed = await oracle.sign(delivery);

    expect((await deliver(gate, forge(oracle, signed))).status).toBeGreaterThanOrEqual(400);
    expect(app.received).toHaveLength(0);

    expect(await deliver(gate, signed)).toMatchObject({ status: 200, text: 'handled' });
    expect(app.received[0]?.body.equals(signed.body)).toBe(true);

    expect((await deliver(gate, signed)).status).toBeLessThan(300);
    const renamed = await deliver(gate, rename(signed, delivery.id));
    // Nothing but the token is known of a sender that signs nothing, so there another id is another event.
    if (oracle.covers.body) {
      // It may be another event with the same bytes: a 2xx would drop it for good.
      const { id, repeatsBytes } = findPreset(oracle.preset) ?? {};
      const hasId = Object.values(signed.headers).includes(delivery.id);
      const mayBeAnother = oracle.covers.id || (repeatsBytes === true && id !== undefined && hasId);
      expect(renamed.status < 300).toBe(!mayBeAnother);
      expect(app.received).toHaveLength(1);
    }
    await gate.stop();
    expect(gate.log().map(({ code }) => code)).toEqual(expect.arrayContaining(['signature_mismatch', 'duplicate']));
  });
});
