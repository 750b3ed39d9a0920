import { X509Certificate } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  type CaSet,
  createCa,
  readSecretData,
  toEnd,
  toSecretData,
  toTrusted,
} from '../../../../src/kubernetes/certificates/ca.ts';
import { planRotation, type RotationTimes } from '../../../../src/kubernetes/certificates/certificate-rotation.ts';
import { fc } from '../../../support/property.ts';

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;
const TIMES: RotationTimes = { caLifetime: 900 * HOUR, serverLifetime: 24 * HOUR, overlap: 10 * HOUR };
const START = 1_800_000_000_000;

function make(at = START): CaSet {
  return planRotation(undefined, undefined, at, TIMES)?.caSet as CaSet;
}

/** Hour by hour, as long as there is something to do. */
function live(authorities: CaSet, hours: number): { readonly hour: number; readonly step: string; readonly trusted: number }[] {
  const steps = [];
  let now = authorities;
  for (let hour = 0; hour <= hours; hour++) {
    const plan = planRotation(now, undefined, START + hour * HOUR, TIMES);
    if (plan === undefined) continue;
    now = plan.caSet;
    steps.push({ hour, step: plan.step, trusted: toTrusted(now).length });
  }
  return steps;
}

describe('a CA', () => {
  test('is created if there is none', () => {
    expect(planRotation(undefined, undefined, START, TIMES)?.step).toBe('created');
    expect(toEnd(make().current.certificate)).toBe(START + TIMES.caLifetime);
  });

  test('is replaced after two thirds of its life: the new one is announced, then signs, then the old one is removed', () => {
    expect(live(make(), 650)).toEqual([
      { hour: 600, step: 'announced', trusted: 2 },
      { hour: 610, step: 'switched', trusted: 2 },
      { hour: 635, step: 'retired', trusted: 1 },
    ]);
  });

  test('stays trusted until every certificate that it signed has expired', () => {
    const { current } = make();
    const next = createCa(START, TIMES.caLifetime);
    const switched = { current: next, previous: { certificate: current.certificate, since: START } };
    expect(planRotation(switched, undefined, START + TIMES.serverLifetime, TIMES)).toBeUndefined();
    expect(planRotation(switched, undefined, START + TIMES.serverLifetime + 60 * SECOND, TIMES)?.step).toBe('retired');
  });

  test('that has expired is replaced at once, or by its announced successor', () => {
    const old = make();
    const late = START + TIMES.caLifetime;
    const plan = planRotation(old, undefined, late, TIMES);
    expect(plan?.step).toBe('replaced');
    expect(toTrusted(plan?.caSet as CaSet)).toHaveLength(1);
    const announced = { ...old, next: createCa(late - HOUR, TIMES.caLifetime) };
    expect(planRotation(announced, undefined, late, TIMES)?.step).toBe('switched');
  });

  test('that a clock ahead has issued is replaced once the clock is right', () => {
    const old = make();
    const ahead = START + 700 * HOUR;
    const replaced = planRotation(make(ahead), undefined, START, TIMES);
    expect(replaced?.step).toBe('replaced');
    // Perhaps this clock is the wrong one.
    expect(toTrusted(replaced?.caSet as CaSet)).toHaveLength(2);
    const announced = { ...old, next: createCa(ahead, TIMES.caLifetime) };
    expect(planRotation(announced, undefined, START, TIMES)).toBeUndefined();
    const plan = planRotation(announced, undefined, START + 600 * HOUR, TIMES);
    expect(plan?.step).toBe('announced');
    expect(toEnd(plan?.caSet.next?.certificate as X509Certificate)).toBe(START + 600 * HOUR + TIMES.caLifetime);
  });

  test('that is in use for less than the difference of two clocks stays', () => {
    expect(planRotation(make(START + 60 * SECOND), undefined, START, TIMES)).toBeUndefined();
  });

  test('that was removed from the Secret stays trusted if a replica knows it', () => {
    const known = make().current.certificate;
    const plan = planRotation(undefined, known, START + HOUR, TIMES);
    expect(toTrusted(plan?.caSet as CaSet)[1]?.serialNumber).toBe(known.serialNumber);
    expect(planRotation(undefined, known, START + TIMES.caLifetime, TIMES)?.caSet.previous).toBeUndefined();
  });

  test('that signs has always been trusted for the overlap before', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 12 }), (pauses) => {
        let now = START;
        let authorities = make();
        const trustedSince = new Map([[authorities.current.certificate.serialNumber, Number.NEGATIVE_INFINITY]]);
        for (const pause of pauses) {
          now += pause * HOUR;
          const plan = planRotation(authorities, undefined, now, TIMES);
          if (plan === undefined) continue;
          // Where nobody was there to announce in time, there is nothing to overlap with.
          if (plan.step === 'switched' && now < toEnd(authorities.current.certificate))
            expect(now - (trustedSince.get(plan.caSet.current.certificate.serialNumber) ?? now)).toBeGreaterThanOrEqual(
              TIMES.overlap,
            );
          authorities = plan.caSet;
          for (const { serialNumber } of toTrusted(authorities))
            if (!trustedSince.has(serialNumber)) trustedSince.set(serialNumber, now);
        }
      }),
      { numRuns: 30 },
    );
  });
});

describe('the Secret', () => {
  test('is read as it was written', () => {
    const { current } = make();
    const next = createCa(START, TIMES.caLifetime);
    const whole = { current, next, previous: { certificate: createCa(START, HOUR).certificate, since: START + 1 } };
    for (const authorities of [{ current }, { current, next }, whole]) {
      const read = readSecretData(toSecretData(authorities)) as CaSet;
      expect(toTrusted(read).map(({ serialNumber }) => serialNumber)).toEqual(
        toTrusted(authorities).map(({ serialNumber }) => serialNumber),
      );
      expect(read.current.certificate.checkPrivateKey(read.current.privateKey)).toBe(true);
      expect(read.previous?.since).toBe(('previous' in authorities ? authorities.previous : undefined)?.since);
    }
  });

  test('is undefined while it is empty', () => {
    expect(readSecretData({})).toBeUndefined();
  });

  test('is not changed if it contains other data, which is never shown', () => {
    const data = toSecretData(make());
    expect(readSecretData({ ...data, password: 'aHVudGVyMg==' })).toEqual({
      problem: expect.stringMatching(/^it contains password, /),
    });
    const other = toSecretData(make());
    const mixed = { ...data, 'ca.key': other['ca.key'] ?? '' };
    expect(readSecretData(mixed)).toEqual({
      problem: expect.stringContaining('delete all its keys, and the rotation controller creates a new CA'),
    });
    for (const text of ['', 'bm9uc2Vuc2U=', '!']) expect(readSecretData({ ...data, 'ca.crt': text })).toHaveProperty('problem');
  });

  test('is used without a successor that is broken', () => {
    const data = toSecretData({ ...make(), next: createCa(START, HOUR) });
    const read = readSecretData({ ...data, 'next.key': '' }) as CaSet;
    expect(read.next).toBeUndefined();
    expect(read.current.certificate).toBeInstanceOf(X509Certificate);
  });
});
