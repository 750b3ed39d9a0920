import { connect, createServer, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { afterEach, describe, expect, test } from 'vitest';
import type { BodyStream, UpgradeRequest } from '../../../../src/core/request.ts';
import { relayTunnel } from '../../../../src/gateway/egress-proxy/egress-proxy.ts';
import { compileAddressRules, isPublicAddress, OwnPorts, PUBLIC_ONLY } from '../../../../src/http/dial/address-rules.ts';
import { findDestinationRule, parseDestination, parseDestinationRule } from '../../../../src/http/dial/destination.ts';
import { resolveChecked, resolveWithin } from '../../../../src/http/dial/resolve.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { startServer } from '../../../support/fixtures.ts';
import { makePauseOwner } from '../../../support/pauses.ts';

const READS = { sendTimeout: 30_000, minRate: 0, enforcedAfter: 30_000, onStall: () => undefined };

describe('a destination', () => {
  test.each([
    ['api.example.com:443', 'api.example.com', 443],
    ['API.Example.COM.:443', 'api.example.com', 443],
    ['192.0.2.1:80', '192.0.2.1', 80],
    ['[2001:DB8::1]:443', '2001:db8::1', 443],
    ['a_b.example:1', 'a_b.example', 1],
  ])('%s is parsed', (text, host, port) => {
    expect(parseDestination(text)).toEqual({ host, port });
  });

  test.each([
    '',
    'example.com',
    'example.com:',
    'example.com:0',
    'example.com:65536',
    'example.com:443:443',
    'example.com:+443',
    'user@example.com:443',
    'example.com/x:443',
    'example.com:443/x',
    'exa mple.com:443',
    'example..com:443',
    '-a.example:443',
    '2130706433:80',
    '0x7f000001:80',
    '0x7f.1:80',
    '0177.0.0.1:80',
    '127.1:80',
    '127.0.0.1.:80x',
    '::1:80',
    '[::1:80',
    '[::1%eth0]:80',
    '[1.2.3.4]:80',
    'example.com\\@evil:80',
    'ex%61mple.com:443',
    'exämple.com:443',
  ])('%j is rejected', (text) => {
    expect(parseDestination(text)).toBeUndefined();
  });
});

test.each([
  ['api.stripe.com:443', 'api.stripe.com:443', true],
  ['api.stripe.com:443', 'api.stripe.com:80', false],
  ['api.stripe.com:443', 'xapi.stripe.com:443', false],
  ['*.example.com:443', 'a.example.com:443', true],
  ['*.example.com:443', 'a.b.example.com:443', true],
  ['*.example.com:443', 'example.com:443', false],
  ['*.example.com:443', 'notexample.com:443', false],
  ['192.0.2.1:80', '192.0.2.1:80', true],
])('the rule %s against %s is %s', (rule, text, isAllowed) => {
  const parsed = parseDestinationRule(rule);
  const destination = parseDestination(text);
  if (parsed === undefined || destination === undefined) throw new Error('not read');
  expect(findDestinationRule([parsed], destination) !== undefined).toBe(isAllowed);
});

test.each(['*', '*.com', 'https://x:443', '*.1.2.3.4:80', 'a.*.example:443', '*:443'])('%s is not a valid rule', (text) => {
  expect(parseDestinationRule(text)).toBeUndefined();
});

describe('an address', () => {
  test.each(['93.184.215.14', '8.8.8.8', '168.63.129.15', '168.63.129.17', '2606:4700::1111', '2a00:1450:4001:80b::200e'])(
    '%s is public',
    (address) => {
      expect(isPublicAddress(address)).toBe(true);
    },
  );

  test.each([
    ...['0.0.0.0', '10.1.2.3', '100.64.0.1', '127.0.0.1', '127.255.255.255', '169.254.169.254', '172.16.0.1', '172.31.255.255'],
    ...['192.168.1.1', '192.0.2.1', '198.18.0.1', '198.51.100.1', '203.0.113.1', '224.0.0.1', '240.0.0.1', '255.255.255.255'],
    ...['::', '::1', '::ffff:127.0.0.1', '::ffff:a9fe:a9fe', '::127.0.0.1', '64:ff9b::7f00:1', '64:ff9b:1::1', '2002:7f00:1::'],
    ...['2001::1', '2001:db8::1', 'fc00::1', 'fd00::1', 'fe80::1', 'fec0::1', 'ff02::1', '100::1', '5f00::1', '3fff::1'],
    ...['168.63.129.16', '100.100.100.200', '192.0.0.192', '161.26.0.10', '166.9.14.1', 'fd00:ec2::254', 'fd20:ce::254'],
    ...['localhost', '', '127.1', '1.2.3.4.5'],
  ])('%s is not public', (address) => {
    expect(isPublicAddress(address)).toBe(false);
  });
});

describe('a name', () => {
  const rules = compileAddressRules(PUBLIC_ONLY);
  const resolve = (...addresses: string[]) => resolveChecked('a.example', async () => addresses, rules);

  test('resolves to its addresses if all are public', async () => {
    expect(await resolve('8.8.8.8', '2606:4700::1111')).toEqual({ addresses: ['8.8.8.8', '2606:4700::1111'] });
  });

  test('is rejected if any of its addresses is private', async () => {
    expect(await resolve('8.8.8.8', '10.0.0.1')).toEqual({
      problem: 'forbidden',
      detail: 'a.example: its address 10.0.0.1 is not on the public internet',
    });
    expect(await resolveChecked('127.0.0.1', async () => [], rules)).toMatchObject({ problem: 'forbidden' });
  });

  test('may resolve to private addresses if the config allows it', async () => {
    const found = await resolveChecked(
      'a.example',
      async () => ['10.0.0.1'],
      () => undefined,
    );
    expect(found).toEqual({ addresses: ['10.0.0.1'] });
  });

  test('is rejected if it has more addresses than are checked', async () => {
    expect(await resolve(...Array.from({ length: 65 }, () => '8.8.8.8'))).toMatchObject({ problem: 'not_found' });
  });

  test('is not waited for longer than the limit', async () => {
    const clock = new FakeClock();
    const found = resolveChecked(
      'a.example',
      resolveWithin(() => new Promise(() => undefined), 5_000, clock),
      rules,
    );
    await clock.advance(5_000);
    expect(await found).toEqual({
      problem: 'not_found',
      detail: 'a.example cannot be resolved (no answer within 5000 ms)',
    });
    const known = resolveWithin(async () => ['8.8.8.8'], 5_000, clock);
    expect(await resolveChecked('a.example', known, rules)).toEqual({ addresses: ['8.8.8.8'] });
    expect(clock.timers).toBe(0);
  });

  test('that does not exist or has no address is not found', async () => {
    expect(await resolve()).toMatchObject({ problem: 'not_found' });
    const fails = () => Promise.reject(new Error('ENOTFOUND'));
    expect(await resolveChecked('a.example', fails, rules)).toEqual({
      problem: 'not_found',
      detail: 'a.example cannot be resolved (ENOTFOUND)',
    });
  });
});

describe('own ports', () => {
  const own = new OwnPorts();
  own.add(8443);

  test.each(['127.0.0.0', '127.0.0.1', '127.127.255.255', '127.128.0.0', '127.255.255.255', '0.0.0.0', '::', '::1'])(
    'are found at %s',
    (address) => {
      expect([own.has(address, 8443), own.has(address, 8444)]).toEqual([true, false]);
    },
  );

  test.each(['126.255.255.255', '128.0.0.0', '192.0.2.1', '::2'])('are not found at %s', (address) => {
    expect(own.has(address, 8443)).toBe(false);
  });
});

describe('over a real connection', () => {
  const closers: (() => void)[] = [];
  afterEach(() => {
    for (const close of closers.splice(0)) close();
  });

  /** The port of a server, and the connections that reach it. */
  async function listen(): Promise<{ readonly port: number; readonly accepted: Promise<Socket> }> {
    const server = createServer();
    const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
    return { port: await startServer(server), accepted };
  }

  /** A tunnel to a real server; the client is one that only counts what it gets. */
  async function openTunnel(limits: { readonly idleTimeout: number; readonly maxDuration: number }) {
    const clock = new FakeClock();
    const { port, accepted } = await listen();
    const near = connect(port, '127.0.0.1');
    const far = await accepted;
    closers.push(() => near.destroy());
    closers.push(() => far.destroy());
    let received = 0;
    let send: ((chunk: Buffer) => void) | undefined;
    const client = {
      write: (chunk: Buffer) => {
        received += chunk.length;
        return true;
      },
      writer: new PassThrough(),
      end: () => undefined,
      destroy: () => undefined,
    } as unknown as UpgradeRequest;
    const content: BodyStream = {
      length: undefined,
      owner: makePauseOwner(clock),
      fail: () => undefined,
      start: (consumer) => {
        send = (chunk) => void consumer.write(chunk);
      },
      stop: () => undefined,
    };
    const totals = relayTunnel(client, content, near, { reads: READS, ...limits }, clock);
    return { clock, near, far, totals, received: () => received, send: (text: string) => send?.(Buffer.from(text)) };
  }

  test('keeps a tunnel open that only downloads, and closes it after idleTimeout without data', async () => {
    const { clock, near, far, totals, received } = await openTunnel({ idleTimeout: 5_000, maxDuration: 60_000 });
    for (let i = 1; i <= 3; i++) {
      await clock.advance(4_000);
      far.write('x');
      await expect.poll(received).toBe(i);
    }
    expect(near.destroyed).toBe(false);
    await clock.advance(4_000);
    expect(near.destroyed).toBe(false);
    await clock.advance(1_000);
    expect(await totals).toEqual({ bytesSent: 0, bytesReceived: 3 });
    expect(clock.timers).toBe(0);
  });

  test('keeps a tunnel open that only uploads, until maxDuration', async () => {
    const { clock, near, totals, send } = await openTunnel({ idleTimeout: 5_000, maxDuration: 10_000 });
    for (const wait of [4_000, 4_000, 1_000]) {
      await clock.advance(wait);
      send('x');
    }
    expect(near.destroyed).toBe(false);
    await clock.advance(1_000);
    expect(await totals).toEqual({ bytesSent: 3, bytesReceived: 0 });
  });
});
