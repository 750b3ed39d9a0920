import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { RemoteCertificates } from '../../../../src/verify/keys/certificates.ts';
import { RemoteFailure } from '../../../../src/verify/keys/https-get.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { useAuthority } from '../../../support/fixtures.ts';

const HOST = 'https://sns.eu-central-1.amazonaws.com';
const GENUINE = new URL(`${HOST}/genuine.pem`);
const DAY = 86_400_000;
const SENDER = '192.0.2.1';

const pem = readFileSync(useAuthority('amazon').issue('sns', 'DNS:sns.amazonaws.com', 30).cert);

function start() {
  const clock = new FakeClock(Date.parse(new X509Certificate(pem).validFrom));
  const there = new Set([GENUINE.href]);
  const asked: string[] = [];
  const certificates = new RemoteCertificates(async (url) => {
    asked.push(url.pathname);
    if (!there.has(url.href)) throw new RemoteFailure('answered 404');
    return { body: pem, freshFor: undefined };
  }, clock);
  const tell = (url: URL, client = SENDER): Promise<string> =>
    certificates.key(url, client).then(
      () => 'good',
      (thrown: Error) => thrown.message,
    );
  /** A delivery whose signature is valid. */
  const verify = async (url: URL): Promise<void> => (await certificates.key(url, SENDER)).onVerified();
  let named = 0;
  /** More URLs that fail than a minute allows a client, and none of them twice. */
  const flood = async (client = SENDER, urls = 40): Promise<void> => {
    for (let i = 0; i < urls; i++) await tell(new URL(`${HOST}/${named++}.pem`), client);
  };
  return { clock, there, asked, certificates, tell, verify, flood };
}

test('keeps a valid certificate while any number of others fail', async () => {
  const { clock, asked, tell, flood } = start();
  expect(await tell(GENUINE)).toBe('good');
  for (let minute = 0; minute < 5; minute++) {
    await flood();
    await clock.advance(60_000);
  }
  expect(await tell(GENUINE)).toBe('good');
  expect(asked.filter((path) => path === GENUINE.pathname)).toHaveLength(1);
  expect(asked).toHaveLength(50);
});

test('fetches a known certificate again even if untrusted clients used up the budget for new ones', async () => {
  const { clock, asked, tell, flood } = start();
  await tell(GENUINE);
  await clock.advance(DAY);
  await flood();
  expect(await tell(new URL(`${HOST}/one-more.pem`))).toMatch(/too many fetches$/);
  expect(await tell(GENUINE)).toBe('good');
  expect(asked.filter((path) => path === GENUINE.pathname)).toHaveLength(2);
});

test('fetches from another host even if untrusted clients used up the budget of one', async () => {
  const { there, tell, flood } = start();
  await flood();
  expect(await tell(GENUINE)).toMatch(/too many fetches$/);
  const other = new URL('https://api.paypal.com/v1/notifications/certs/CERT-1');
  there.add(other.href);
  expect(await tell(other)).toBe('good');
});

test.each([
  ['one address', 1, () => '198.51.100.1'],
  ['the networks of one IPv6 site', 300, (index: number) => `2001:db8:0:${index.toString(16)}::1`],
  ['twenty addresses', 20, (index: number) => `198.51.100.${index}`],
])('fetches a certificate for its sender while %s invent URLs', async (_, count, toClient) => {
  const { tell, flood } = start();
  for (let index = 0; index < count; index++) await flood(toClient(index), 11);
  expect(await tell(GENUINE)).toBe('good');
});

test('has fetches left for the sender of a certificate while sixty addresses use as many as they get', async () => {
  const { clock, asked, tell, flood } = start();
  for (let second = 0; second < 180; second++) {
    for (let index = 0; index < 60; index++) await flood(`198.51.100.${index}`, 1);
    await clock.advance(1_000);
  }
  expect(asked.length).toBeGreaterThan(200);
  expect(await tell(GENUINE)).toBe('good');
});

test('sends a host at most a hundred requests a minute, and has some left for other clients each minute', async () => {
  const { clock, asked, tell, flood } = start();
  for (let minute = 0; minute < 3; minute++) {
    for (let index = 0; index < 150; index++) await flood(`198.51.100.${index}`, 11);
    expect(asked.length).toBe(100 * (minute + 1));
    expect(await tell(GENUINE)).toMatch(/too many fetches$/);
    await clock.advance(60_000);
  }
  expect(await tell(GENUINE)).toBe('good');
});

test('keeps a certificate that verified a signature while untrusted clients name any number of other valid ones', async () => {
  const { clock, there, asked, verify, tell } = start();
  await verify(GENUINE);
  const flood = async (): Promise<void> => {
    for (let i = 0; i < 40; i++) {
      const url = new URL(`${HOST}/good-${i}.pem`);
      there.add(url.href);
      expect(await tell(url, `198.51.100.${i}`)).toBe('good');
    }
  };
  await flood();
  await verify(GENUINE);
  expect(asked.filter((path) => path === GENUINE.pathname)).toHaveLength(1);
  await clock.advance(DAY);
  await verify(GENUINE);
  await flood();
  await verify(GENUINE);
  expect(asked.filter((path) => path === GENUINE.pathname)).toHaveLength(2);
});

test('remembers at most sixteen certificates that verified a signature', async () => {
  const { clock, there, asked, verify } = start();
  for (let i = 0; i < 17; i++) {
    const url = new URL(`${HOST}/good-${i}.pem`);
    there.add(url.href);
    await verify(url);
    await clock.advance(10_000);
  }
  await verify(new URL(`${HOST}/good-1.pem`));
  expect(asked).toHaveLength(17);
  await verify(new URL(`${HOST}/good-0.pem`));
  expect(asked).toHaveLength(18);
});

test('requests a known certificate that now fails at most every ten seconds, and accepts it once it is available again', async () => {
  const { clock, there, asked, tell } = start();
  await tell(GENUINE);
  await clock.advance(DAY);
  there.clear();
  for (let second = 0; second < 60; second++) {
    expect(await tell(GENUINE)).toBe('answered 404');
    await clock.advance(1_000);
  }
  expect(asked).toHaveLength(7);
  there.add(GENUINE.href);
  expect(await tell(GENUINE)).toBe('good');
});

test('fetches again ten seconds after a failure, and as often as before, also if the clock is set back', async () => {
  const { clock, there, asked, tell, flood } = start();
  there.clear();
  clock.step(DAY / 24);
  expect(await tell(GENUINE)).toBe('answered 404');
  await flood();
  clock.step(-DAY / 24);
  there.add(GENUINE.href);
  await clock.advance(60_000);
  expect(await tell(GENUINE)).toBe('good');
  await flood();
  expect(asked).toHaveLength(20);
});

test('sends one request for concurrent requests of the same certificate', async () => {
  const { asked, tell } = start();
  expect(await Promise.all([tell(GENUINE), tell(GENUINE), tell(GENUINE)])).toEqual(['good', 'good', 'good']);
  expect(asked).toHaveLength(1);
});

test('remembers at most sixteen valid certificates that verified no signature', async () => {
  const { clock, there, asked, tell } = start();
  await tell(GENUINE);
  for (let i = 0; i < 16; i++) {
    const url = new URL(`${HOST}/good-${i}.pem`);
    there.add(url.href);
    expect(await tell(url)).toBe('good');
    await clock.advance(10_000);
  }
  await tell(GENUINE);
  expect(asked.filter((path) => path === GENUINE.pathname)).toHaveLength(2);
});

test('follows ten confirmation URLs of a client, and no more, even when the budget for certificates is used up', async () => {
  const { there, certificates, flood } = start();
  await flood();
  const url = new URL(`${HOST}/?Action=ConfirmSubscription`);
  there.add(url.href);
  for (let i = 0; i < 10; i++) await certificates.follow(url, SENDER);
  await expect(certificates.follow(url, SENDER)).rejects.toThrow(/too many fetches$/);
  await certificates.follow(url, '198.51.100.1');
});
