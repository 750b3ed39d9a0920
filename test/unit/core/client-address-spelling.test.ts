import { expect, test } from 'vitest';
import { HeaderFields } from '../../../src/core/headers.ts';
import { createClientResolver } from '../../../src/http/server/client-address.ts';

const resolve = createClientResolver({ address: ['10.0.0.0/8'], identity: [] });

test.each([
  ['2001:DB8:0:0::0007', '2001:db8::7'],
  ['[2001:db8:0:0:0:0:0:7]:4711', '2001:db8::7'],
  ['fe80::1%eth0', 'fe80::1'],
  ['::FFFF:192.0.2.7', '192.0.2.7'],
  ['::ffff:c000:207', '192.0.2.7'],
])('a client that a proxy reports as %s has the address %s', (written, address) => {
  expect(resolve('10.1.1.1', false, new HeaderFields(['X-Forwarded-For', written])).address).toBe(address);
});

test('a client that the PROXY protocol reports in binary form gets its normalized address', () => {
  expect(resolve('0:0:0:0:0:ffff:c000:207', false, new HeaderFields([])).address).toBe('192.0.2.7');
  expect(resolve('2001:db8:0:0:0:0:0:7', false, new HeaderFields([])).address).toBe('2001:db8::7');
});
