import { generateKeyPairSync } from 'node:crypto';
import { afterEach, describe, expect, test } from 'vitest';
import { customScheme } from '../../src/config/schema/scheme-schema.ts';
import { type ProbeReport, toText } from '../../src/diagnostics/probe/report.ts';
import { CHECKS } from '../../src/diagnostics/probe/run-checks.ts';
import { type Consumer, type Habits, SOUND, startConsumer } from '../support/consumer.ts';
import { SECRET } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, toRoute } from '../support/gate.ts';
import { findOutcome, type ProbeSettings, probe } from '../support/probe.ts';

const started: { close(): Promise<unknown> }[] = [];
afterEach(async () => {
  for (const each of started.splice(0)) await each.close();
});

async function consume(habits: Partial<Habits> = {}, now?: () => number): Promise<Consumer> {
  const consumer = await startConsumer(habits, now);
  started.push(consumer);
  return consumer;
}

async function probeConsumer(habits: Partial<Habits>, settings: ProbeSettings = {}): Promise<ProbeReport> {
  const consumer = await consume(habits);
  return probe(consumer.url, { count: async (id) => consumer.handled.get(id) ?? 0, ...settings });
}

const TEXT_SECRET = "It's a Secret to Everybody";
const ed25519 = generateKeyPairSync('ed25519');
const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const spki = (pair: typeof p256): Buffer => pair.publicKey.export({ type: 'spki', format: 'der' });
const pem = (pair: typeof p256): string => pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();

/** Schemes of every build, by what is odd about them; `verify`: what the gate has where it is not the signer's secret. */
const CUSTOM: Readonly<Record<string, { custom: Sections; sign?: string; verify?: string; webhook?: Sections }>> = {
  'the time in the list of signatures, the id in the content': {
    custom: {
      signature: { header: 'X-Signature', list: ',', forms: [{ prefix: 'v1=' }] },
      signed: ['timestamp', 'body'],
      separator: '.',
      timestamp: { entry: 't=' },
      id: { json: '$.event.id' },
    },
  },
  'the time in the content, and an id that is not signed': {
    custom: { signature: { header: 'X-Signature' }, timestamp: { json: '$.sentAt', unit: 'ms' }, id: { header: 'X-Delivery' } },
  },
  'Ed25519 in hex, and nothing between the parts': {
    custom: {
      signature: { header: 'X-Signature', forms: [{ algorithm: 'ed25519' }] },
      signed: ['timestamp', 'body'],
      timestamp: { header: 'X-Time' },
      publicKey: { encoding: 'hex', format: 'raw' },
    },
    sign: pem(ed25519),
    verify: spki(ed25519).subarray(-32).toString('hex'),
  },
  'ECDSA in base64': {
    custom: {
      signature: { header: 'X-Signature', encoding: 'base64', forms: [{ algorithm: 'ecdsa-p256' }] },
      signed: ['timestamp', 'body'],
      timestamp: { header: 'X-Time' },
    },
    sign: pem(p256),
    verify: spki(p256).toString('base64'),
  },
  'the time in words': {
    custom: {
      signature: { header: 'X-Signature', forms: [{ prefix: 'sha256=' }] },
      signed: ['id', 'timestamp', 'body'],
      timestamp: { header: 'X-Time', unit: 'rfc3339' },
      id: { header: 'X-Id' },
    },
  },
  'the URL, and milliseconds': {
    custom: {
      signature: { header: 'X-Signature', encoding: 'base64' },
      signed: ['method', 'url', 'body', 'timestamp'],
      timestamp: { header: 'X-Time', unit: 'ms' },
      contentShape: 'json-object',
    },
    webhook: { publicUrl: 'https://hooks.example.com' },
  },
};

describe('a gate passes every check', () => {
  const app = useApp();

  async function probeGate(webhook: Sections, settings: ProbeSettings & { readonly verify?: string }): Promise<ProbeReport> {
    const secret = settings.verify ?? settings.secret ?? '';
    const gate = await startGate({ routes: [toRoute(app.port, { webhook })] }, undefined, { secret });
    started.push({ close: () => gate.stop() });
    const count = async (id: string): Promise<number> =>
      app.received.filter(({ headers, body }) => body.includes(id) || Object.values(headers).includes(id)).length;
    const report = await probe(`http://127.0.0.1:${gate.port}/hooks/billing`, { ...settings, count });
    const broken = report.checks.filter(({ outcome }) => outcome !== 'passed' && outcome !== 'not_applicable');
    expect(broken.map(({ id, outcome, actual }) => `${id} ${outcome}: ${actual}`)).toEqual([]);
    expect(report.requests).toBeLessThanOrEqual(60);
    return report;
  }

  test.each([
    ['standard-webhooks', SECRET],
    ['svix', SECRET],
    ['github', TEXT_SECRET],
  ])('of %s, and its app handles each event once', async (scheme, secret) => {
    const report = await probeGate({ scheme }, { scheme, secret });
    const signsAll = scheme !== 'github';
    expect(findOutcome(report, 'not_applicable').includes('tampered-id')).toBe(!signsAll);
    if (signsAll) expect(findOutcome(report, 'not_applicable')).toEqual(['new-id']);
  });

  test.each(['bearer', 'api-key'])('of %s, which signs nothing and does not distinguish events', async (scheme) => {
    const report = await probeGate({ scheme, dedup: 'off' }, { scheme, secret: 'a-token-of-some-length' });
    expect(findOutcome(report, 'passed')).toEqual(expect.arrayContaining(['wrong-key', 'missing-headers', 'cut-signature']));
    expect(findOutcome(report, 'not_applicable')).toEqual(expect.arrayContaining(['tampered-body', 'stale', 'duplicate']));
  });

  test.each(Object.keys(CUSTOM))('of a scheme with %s', async (oddity) => {
    const { custom, sign = TEXT_SECRET, verify, webhook } = CUSTOM[oddity] as (typeof CUSTOM)[string];
    const report = await probeGate(
      { scheme: 'custom', custom, ...webhook },
      {
        scheme: customScheme.parse(custom),
        secret: sign,
        ...(verify !== undefined && { verify }),
        ...(webhook !== undefined && { publicUrl: `${webhook['publicUrl']}/hooks/billing` }),
      },
    );
    const held = findOutcome(report, 'passed');
    expect(held).toEqual(expect.arrayContaining(['tampered-body', 'wrong-key', 'missing-headers', 'duplicate']));
    expect(held.includes('stale')).toBe(custom['timestamp'] !== undefined);
    expect(held.includes('new-id')).toBe(oddity.includes('not signed'));
  });

  test('of signatures with a key pair, which an empty key cannot forge', async () => {
    const seed = ed25519.privateKey.export({ type: 'pkcs8', format: 'der' }).subarray(-32);
    const verify = `whpk_${spki(ed25519).subarray(-32).toString('base64')}`;
    const report = await probeGate({}, { secret: `whsk_${seed.toString('base64')}`, verify });
    expect(findOutcome(report, 'not_applicable')).toEqual(['empty-key', 'new-id']);
  });
});

describe('a consumer', () => {
  test('that does everything right passes every check', async () => {
    const report = await probeConsumer({});
    expect(report.checks.filter(({ outcome }) => outcome === 'failed')).toEqual([]);
    expect(findOutcome(report, 'passed')).toHaveLength(CHECKS.length - 1);
  });

  test('gets the outcome `see` for what only the app knows, without --count', async () => {
    const report = await probe((await consume({ remembers: 'never' })).url);
    expect(findOutcome(report, 'failed')).toEqual([]);
    expect(findOutcome(report, 'see')).toEqual(['duplicate', 'retry', 'concurrent-duplicates']);
    for (const { advice } of report.checks.filter(({ outcome }) => outcome === 'see'))
      expect(advice).toMatch(/^see in your app whether probe_[0-9a-f]{24} was handled exactly once/);
  });

  const flaws: readonly (readonly [flaw: string, habits: Partial<Habits>, fails: readonly string[]])[] = [
    ['verifies nothing', { trusts: () => true }, ['wrong-key']],
    [
      'verifies JSON that it wrote anew',
      { toSigned: (id, time, body) => SOUND.toSigned(id, time, Buffer.from(JSON.stringify(JSON.parse(body.toString())))) },
      ['raw-bytes', 'reserialised-body', 'lossy-text', 'refusal-status', 'reveals-code'],
    ],
    [
      'verifies text',
      { toSigned: (id, time, body) => SOUND.toSigned(id, time, Buffer.from(body.toString().replace(/^\ufeff/, ''))) },
      ['lossy-text'],
    ],
    [
      'fills a template',
      { toSigned: (id, time, body) => Buffer.from(`${id}.${time}.BODY`.replace('BODY', body.toString('latin1')), 'latin1') },
      ['raw-bytes', 'dollar-signs'],
    ],
    [
      'trims what it verifies',
      { toSigned: (id, time, body) => SOUND.toSigned(id, time, Buffer.from(body.toString('latin1').trim(), 'latin1')) },
      ['raw-bytes', 'reserialised-body'],
    ],
    ['does not look at the time', { isRecent: () => true }, ['stale', 'future']],
    ['has no bound to the future', { isRecent: (age) => age <= 300 }, ['future']],
    ['allows a few seconds', { isRecent: (age) => Math.abs(age) <= 20 }, ['skewed']],
    [
      'makes a number of the time',
      { parseTime: (text) => Number.parseInt(text, 10), toSignedTime: (_text, seconds) => String(seconds) },
      ['timestamp-forms'],
    ],
    ['takes milliseconds, too', { parseTime: (text) => Number(text) / (text.length > 12 ? 1000 : 1) }, ['timestamp-unit']],
    [
      'reads the first signature',
      { toEntries: (list) => list.split(' ').slice(0, 1) },
      ['several-signatures', 'odd-signature-entries'],
    ],
    ['reads any number of signatures', { toEntries: (list) => list.split(' ') }, ['many-signatures']],
    [
      'compares as much as it was sent',
      { isSame: (entry, right) => entry.startsWith('v1,') && right.startsWith(entry.slice(3)) },
      ['empty-signature', 'cut-signature', 'loose-base64'],
    ],
    ['does not look at the version', { isSame: (entry, right) => entry.endsWith(`,${right}`) }, ['wrong-prefix']],
    [
      'decodes what is nearly base64',
      { isSame: (entry, right) => entry.startsWith('v1,') && Buffer.from(entry.slice(3), 'base64').toString('base64') === right },
      ['loose-base64'],
    ],
    ['takes the empty key, too', { secrets: [...SOUND.secrets, ''] }, ['empty-key']],
    [
      'looks at a signature only where there is one',
      { trusts: ({ headers }) => (headers['webhook-signature'] ?? '') === '' },
      ['missing-headers', 'empty-signature'],
    ],
    [
      'takes the first of two headers',
      { readField: ({ headers }, name) => headers[name]?.toString().split(', ')[0] },
      ['repeated-header'],
    ],
    [
      'prefers the other family of headers',
      {
        readField: (request, name) => {
          const twin = request.headers[name.replace('webhook-', 'svix-')];
          return twin === undefined ? SOUND.readField(request, name) : String(twin);
        },
      },
      ['two-header-families'],
    ],
    ['takes any id', { isSoundId: () => true }, ['separator-in-id']],
    [
      'knows headers in one spelling',
      {
        readField: (request, name) =>
          request.rawHeaders.some((each) => each.toLowerCase() === name && each === each.toUpperCase())
            ? undefined
            : SOUND.readField(request, name),
      },
      ['header-case'],
    ],
    [
      'knows one spelling of the content type',
      { isTaken: ({ headers }) => headers['content-type'] === 'application/json' },
      ['content-type-parameter'],
    ],
    ['takes 100 KiB', { isTaken: ({ body }) => body.length <= 102_400 }, ['big-body', 'very-big-body']],
    [
      'reads as much as Content-Length says',
      { toContent: ({ headers, body }) => body.subarray(0, Number(headers['content-length'] ?? 0)) },
      ['chunked'],
    ],
    ['forgets what it handled', { remembers: 'never' }, ['duplicate', 'retry', 'concurrent-duplicates']],
    ['remembers too late', { remembers: 'after a while' }, ['concurrent-duplicates']],
    [
      'answers repeats with an error',
      { accept: (response, isDuplicate) => response.writeHead(isDuplicate ? 400 : 200).end() },
      ['duplicate', 'retry', 'concurrent-duplicates'],
    ],
    ['asks for forgeries to be sent again', { refuse: (response) => response.writeHead(503).end() }, ['refusal-status']],
    ['tells senders to stop for good', { refuse: (response) => response.writeHead(410).end() }, ['refusal-status']],
    [
      'says what it expected',
      { refuse: (response, right) => response.writeHead(401).end(`expected v1,${right}`) },
      ['reveals-signature'],
    ],
    ['says its secret', { refuse: (response) => response.writeHead(401).end(`not by ${SECRET}`) }, ['reveals-signature']],
    [
      'lets its answers be obeyed',
      { accept: (response) => response.writeHead(200, { 'X-Slack-No-Retry': '1' }).end() },
      ['sender-commands'],
    ],
  ];
  test.each(flaws)('that %s fails exactly there', async (_flaw, habits, fails) => {
    const report = await probeConsumer(habits);
    expect(findOutcome(report, 'failed')).toEqual(fails);
  });

  test.each([
    [4_000, ['answer-time-strict']],
    [16_000, ['answer-time', 'answer-time-strict']],
  ])('that answers after %d ms fails exactly there', async (ms, fails) => {
    const clock = new FakeClock();
    const accept: Habits['accept'] = (response) => {
      void clock.advance(ms).then(() => response.end());
    };
    const { url } = await consume({ accept }, () => Math.floor(clock.now() / 1000));
    const report = await probe(url, { clock, only: fails });
    expect(findOutcome(report, 'failed')).toEqual(fails);
    expect(report.checks.at(-1)?.advice).toMatch(/^too late for: Sentry, Slack and Zoom/);
  });

  test('that redirects fails that check, and no further ones run', async () => {
    const { url } = await consume({ accept: (response) => response.writeHead(308, { Location: '/hooks/' }).end() });
    const report = await probe(url);
    expect(findOutcome(report, 'failed')).toEqual(['valid', 'redirect']);
    expect(report.requests).toBe(1);
    expect(findOutcome(report, 'skipped')).toContain('wrong-key');
  });

  test('that rejects everything passes no check', async () => {
    const report = await probeConsumer({ isRecent: () => false });
    expect(findOutcome(report, 'failed')).toEqual(['valid']);
    expect(findOutcome(report, 'skipped')).toContain('tampered-body');
  });

  test('that verifies nothing gets no further forgery, but what does not depend on that', async () => {
    const report = await probeConsumer({ trusts: () => true, remembers: 'never' });
    expect(findOutcome(report, 'failed')).toEqual(['wrong-key', 'duplicate', 'retry', 'concurrent-duplicates']);
    expect(findOutcome(report, 'skipped')).toEqual(expect.arrayContaining(['tampered-body', 'stale']));
    expect(toText(report, false)).toMatch(/^\d+ checks skipped: not sent: a delivery signed with another key was accepted/m);
    expect(toText(report, false)).not.toContain('tampered-body');
  });

  test('that stops listening gets no further request', async () => {
    const consumer: Consumer = await consume({
      accept: (response) => void response.end(() => void consumer.close().catch(() => undefined)),
    });
    const report = await probe(consumer.url, { parallel: 1 });
    expect(findOutcome(report, 'skipped').length).toBeGreaterThan(20);
    expect(report.checks.find(({ id }) => id === 'chunked')?.actual).toContain('no longer accepts connections');
  });

  test('that a malformed request breaks fails the last check', async () => {
    let isSpoilt = false;
    const toEntries: Habits['toEntries'] = (list) => {
      isSpoilt ||= list.split(' ').length > 10;
      if (isSpoilt) throw new Error('out of order');
      return list.split(' ');
    };
    const report = await probeConsumer({ toEntries }, { only: ['many-signatures', 'survives'] });
    expect(findOutcome(report, 'failed')).toEqual(['survives']);
  });

  test('that limits its requests is reported', async () => {
    let count = 0;
    const report = await probeConsumer(
      { accept: (response) => response.writeHead(++count > 1 ? 429 : 200).end() },
      { only: ['chunked'] },
    );
    expect(report.checks.map(({ outcome }) => outcome)).toEqual(['passed', 'failed']);
    expect(report.checks[1]?.advice).toContain('--parallel 1');
  });
});

describe('a run', () => {
  test('sends at most 60 requests, at most 8 of them at once', async () => {
    let [now, most, all] = [0, 0, 0];
    await probeConsumer(
      {},
      {
        parallel: 5,
        watch: (send) => async (outgoing) => {
          most = Math.max(most, ++now);
          all++;
          try {
            return await send(outgoing);
          } finally {
            now--;
          }
        },
      },
    );
    expect(most).toBeLessThanOrEqual(8);
    expect(all).toBeLessThanOrEqual(60);
  });

  test('signs a sample of the user with a new ID each time', async () => {
    const bodies: Buffer[] = [];
    const template = Buffer.from('{ "id": "evt_1", "kind": "sample" }');
    const report = await probeConsumer({ toContent: ({ body }) => bodies[bodies.push(body) - 1] as Buffer }, { template });
    expect(findOutcome(report, 'failed')).toEqual([]);
    const ids = bodies.flatMap((body) => (/"id" ?: ?"(?:\\u0070|p)robe_[0-9a-f]{24}"/.test(body.toString()) ? [body] : []));
    expect(ids.length).toBeGreaterThan(20);
    expect(bodies.every((body) => !body.includes('evt_1'))).toBe(true);
  });
});
