import { describe, expect, test } from 'vitest';
import { createCa } from '../../../../src/kubernetes/certificates/ca.ts';
import type { SecretData } from '../../../../src/kubernetes/certificates/cluster-objects.ts';
import { issuePair, readPairData, toPairData } from '../../../../src/kubernetes/certificates/server-pair.ts';

const NOW = 1_800_000_000_000;
const DAY = 86_400_000;
const NAMES = { service: 'injector', namespace: 'gate', dnsNames: ['injector.example'], serverLifetime: DAY };
const issue = (): SecretData => toPairData(issuePair(createCa(NOW, 30 * DAY), NAMES, NOW));

describe('the Secret with the server certificate', () => {
  test('is read as it was written, for all its names', () => {
    const read = readPairData(issue());
    for (const name of ['injector.gate.svc', 'injector.gate.svc.cluster.local', 'injector.gate', 'injector', 'injector.example'])
      expect(read?.certificate.checkHost(name), name).toBe(name);
    expect(read?.certificate.verify((read as NonNullable<typeof read>).issuer.publicKey)).toBe(true);
  });

  test.each<[string, SecretData]>([
    ['is empty', {}],
    ['lacks its key', { ...issue(), 'tls.key': '' }],
    ['has the key of another', { ...issue(), 'tls.key': issue()['tls.key'] as string }],
    ['has the CA of another', { ...issue(), 'ca.crt': issue()['ca.crt'] as string }],
    ['holds text', { ...issue(), 'tls.crt': Buffer.from('none').toString('base64') }],
  ])('has no certificate if it %s', (_title, data) => {
    expect(readPairData(data)).toBeUndefined();
  });

  test('never shows its key', () => {
    expect(JSON.stringify(readPairData(issue()))).not.toContain('PRIVATE KEY');
  });
});
