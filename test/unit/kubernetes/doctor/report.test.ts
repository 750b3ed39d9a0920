import { describe, expect, test } from 'vitest';
import { diagnose, toJson, toText } from '../../../../src/kubernetes/doctor/report.ts';
import { type Json, makeFacts, makePod } from '../../../support/doctor.ts';

const SUBJECT = { context: 'prod\u001b[2J', namespace: 'shop' };
const HOSTILE = 'a\u001b]0;x\u0007\u009b31m\u202eb\u200bc\r\nprotected \u{e0001}\u2028d';

/** What a pod, a config and a Deployment may say, with what terminals obey. */
function hostileReport() {
  const pod: Json = makePod('web-1-a');
  pod.metadata.annotations['sidegate.dev/status'] = JSON.stringify({
    ...{ version: HOSTILE, takeover: HOSTILE, sidecar: 'native', hash: 'library' },
  });
  return diagnose(
    makeFacts({
      pods: [pod],
      Deployment: [],
      configs: new Map([['shop/web-gate', { state: 'broken', problems: [HOSTILE] }]]),
      services: { unknown: HOSTILE },
    }),
  );
}

describe('text from objects', () => {
  test('reaches a terminal without control sequences', () => {
    const text = toText(hostileReport(), SUBJECT, false);
    expect(text.split('\n').filter((line) => /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(line))).toEqual([]);
    expect(text).toContain('the config in the ConfigMap web-gate is invalid: a]0;x31mbc protected d\n');
  });

  test('reaches tools unchanged, escaped', () => {
    const text = toJson(hostileReport(), SUBJECT);
    expect(text.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    const { context, workloads } = JSON.parse(text);
    expect(context).toBe(SUBJECT.context);
    expect(JSON.stringify(workloads)).toContain(JSON.stringify(HOSTILE).slice(1, -1));
  });

  test.each([
    ['version', HOSTILE],
    ['version', ''],
    ['version', 'x'.repeat(65)],
    ['takeover', 'other'],
    ['sidecar', 'init'],
    ['hash', '../x'],
  ])('is not used as a status with the %s %j', (key, value) => {
    const pod: Json = makePod('a');
    const status = JSON.parse(pod.metadata.annotations['sidegate.dev/status']);
    const interceptionsOf = () => diagnose(makeFacts({ pods: [pod] })).workloads.flatMap(({ interceptions }) => interceptions);
    expect(interceptionsOf()).toEqual(['service']);
    pod.metadata.annotations['sidegate.dev/status'] = JSON.stringify({ ...status, [key]: value });
    expect(interceptionsOf()).toEqual([]);
  });
});
