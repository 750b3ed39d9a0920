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
  ['greenhouse', 200],
  ['linear', 200],
  ['meta', 200],
  ['monday', 200],
  ['todoist', 200],
  ['vonage', 200],
  ['whatsapp', 200],
  ['xero', 200],
  ['ringcentral', 200],
  ['wise', 200],
  ['x', 200],
  ['discord', 204],
  ['asana', 200],
  ['custom', 202],
  ['github', 202],
  // It does not say what counts.
  ['statsig', 200],
  ['a sender that nobody knows', 200],
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

test.each([
  ['front', 'store_unavailable', 500],
  ['front', 'upstream_timeout', 500],
  ['sentry', 'request_timeout', 503],
  ['sentry', 'too_many_attempts', 503],
  ['aws-sns', 'request_timeout', 503],
] as const)('%s gets a status that it retries for %s: %i', (preset, code, status) => {
  expect(statusOf(preset, code)).toBe(status);
});

test('each refusal after which a sender should retry says when, as Supabase and Zendesk otherwise do not', () => {
  const later = CODES.filter((code) => toMeaning(code) === 'later');
  // A loop lasts until its proxies are configured otherwise.
  expect(later.filter((code) => REFUSALS[code].retryAfterSeconds === undefined)).toEqual(['loop_detected']);
});

test('a refusal means done, never or later', () => {
  expect(toMeaning('duplicate')).toBe('done');
  expect(toMeaning('signature_mismatch')).toBe('never');
  for (const code of ['in_progress', 'request_timeout', 'too_many_attempts', 'overloaded', 'upstream_timeout'] as const)
    expect(toMeaning(code)).toBe('later');
});
