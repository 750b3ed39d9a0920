import { expect, test } from 'vitest';
import { findDestinationRule, parseDestination, parseDestinationRule } from '../../../../src/http/dial/destination.ts';

test.each([
  ['[2001:db8::1]:443', '[2001:DB8:0:0::0001]:443', true],
  ['[2001:DB8:0::1]:443', '[2001:db8::1]:443', true],
  ['192.0.2.7:443', '[::ffff:192.0.2.7]:443', true],
  ['[::ffff:c000:207]:443', '192.0.2.7:443', true],
  ['[2001:db8::1]:443', '[2001:db8::2]:443', false],
  ['192.0.2.7:443', '[::192.0.2.7]:443', false],
  ['192.0.2.7:443', '[64:ff9b::192.0.2.7]:443', false],
])('the rule %s allows %s, whatever the notation of the address: %s', (rule, text, expected) => {
  const [parsedRule, destination] = [parseDestinationRule(rule), parseDestination(text)];
  if (parsedRule === undefined || destination === undefined) throw new Error('one of the two was not parsed');
  expect(findDestinationRule([parsedRule], destination)).toBe(expected ? parsedRule : undefined);
});

test.each(['[192.0.2.7]:443', '[fe80::1%eth0]:443', '[]:443', '[::1', '[:]:443', '::1:443'])('rejects %s', (text) => {
  expect(parseDestination(text)).toBeUndefined();
});
