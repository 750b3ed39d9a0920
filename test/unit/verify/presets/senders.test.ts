import { describe, expect, test } from 'vitest';
import { REFUSALS, type RefusalCode } from '../../../../src/core/refusal.ts';
import {
  isRetried,
  SENDERS,
  toAcceptedStatus,
  toMeaning,
  toStatuses,
  translate,
} from '../../../../src/verify/presets/senders.ts';

const CODES = Object.keys(REFUSALS) as RefusalCode[];
const statusOf = (preset: string, code: RefusalCode): number => toStatuses(preset).get(code) ?? REFUSALS[code].status;

test.each([
  ['standard-webhooks', 202],
  ['persona', 202],
  ['zoom', 200],
  ['xero', 200],
  ['discord', 204],
  ['a sender that nobody knows', 202],
])('a delivery of %s that is stored but not handled yet gets %i', (preset, status) => {
  expect(toAcceptedStatus(preset)).toBe(status);
});

describe.each(Object.entries(SENDERS))('the responses to %s', (preset, profile) => {
  test('never make it stop permanently', () => {
    for (const code of CODES) expect(profile.disabledBy ?? []).not.toContain(statusOf(preset, code));
  });

  test('make it retry after an error of the gate, if any status does', () => {
    for (const code of CODES.filter((each) => toMeaning(each) === 'later'))
      if (profile.retries !== 'nothing') expect([code, isRetried(profile, statusOf(preset, code))]).toEqual([code, true]);
  });

  test('count as delivered only if the event was handled', () => {
    for (const code of CODES) {
      const status = statusOf(preset, code);
      const isTaken = profile.acknowledgedBy?.includes(status) ?? (status >= 200 && status < 300);
      expect([code, isTaken]).toEqual([code, toMeaning(code) === 'done']);
    }
  });
});

test('statuses that most senders understand are unchanged', () => {
  expect([...translate({})]).toEqual([]);
  expect([...toStatuses('a sender that nobody knows')]).toEqual([]);
});

test('a status that a sender interprets differently is replaced by one with the intended meaning', () => {
  expect(translate({ acknowledgedBy: [204] }).get('duplicate')).toBe(204);
  expect(translate({ disabledBy: [401, 400] }).get('signature_mismatch')).toBe(403);
  expect(translate({ givesUpOn: [503] }).get('store_unavailable')).toBe(500);
  expect(translate({ retries: 'server-errors' }).get('request_timeout')).toBe(503);
  expect(translate({ retries: 'server-errors' }).has('signature_mismatch')).toBe(false);
});

test('a refusal means done, never or later', () => {
  expect(toMeaning('duplicate')).toBe('done');
  expect(toMeaning('signature_mismatch')).toBe('never');
  for (const code of ['in_progress', 'request_timeout', 'too_many_attempts', 'overloaded', 'upstream_timeout'] as const)
    expect(toMeaning(code)).toBe('later');
});
