import { beforeAll, describe, expect, test } from 'vitest';
import * as source from '../../../src/library/verifier.ts';
import { findPreset } from '../../../src/verify/presets/catalogue.ts';
import type { SchemeDescription } from '../../../src/verify/schemes/description.ts';
import { type LibraryModule, loadInWorker } from '../../support/library.ts';
import { readAsymmetricVectors, readVectors, type Vector } from '../../support/oracles/vectors.ts';
import { toSentTypes } from '../../support/sent-heads.ts';

const ORIGIN = /^https?:\/\/[^/]+/;
let worker: LibraryModule;
beforeAll(async () => {
  worker = await loadInWorker();
});

/** `ok`, or the code of the refusal. */
async function judge(
  { createVerifier, memoryStore }: LibraryModule,
  description: SchemeDescription,
  vector: Vector,
): Promise<string> {
  const { secret, signed, preset, atEpochSeconds, receiverId } = vector;
  const headers = Object.entries(signed.headers);
  const [type] = toSentTypes(description, signed.body);
  const verifier = createVerifier({
    scheme: preset,
    secrets: [{ secret: secret.text, ...(secret.encoding && { encoding: secret.encoding }) }],
    publicUrl: ORIGIN.exec(signed.url)?.[0] ?? 'https://hooks.example.com',
    ...(receiverId !== undefined && { receiverId }),
    ...((description.unsignedBody === true || description.signed.includes('crc32')) && { dedup: memoryStore() }),
    ...(description.signed.includes('crc32') && { allowWeakDigest: true }),
    allowQuery: true,
    handshake: 'off',
    now: () => atEpochSeconds * 1000,
  });
  const hasType = headers.some(([name]) => name.toLowerCase() === 'content-type') || type === undefined;
  const result = await verifier.verify({
    method: signed.method,
    url: signed.url,
    headers: hasType ? headers : [...headers, ['Content-Type', type]],
    body: signed.body,
  });
  return result.ok ? 'ok' : `${result.code} ${result.reason} ${result.detail ?? ''}`;
}

const ALL = [...readVectors(), ...readAsymmetricVectors()].flatMap((vector) => {
  const description = findPreset(vector.preset);
  const isSupported = description !== undefined && description.jwt === undefined && description.isSignedInContent === undefined;
  return isSupported ? [{ vector, description, title: `${vector.preset}: ${vector.source} ${vector.why ?? ''}` }] : [];
});

describe.each([
  ['on Node', () => source],
  ['in a worker', () => worker],
] as const)('%s', (_, library) => {
  test.each(ALL.filter(({ vector }) => vector.verdict === 'ok'))('accepts $title', async ({ vector, description }) => {
    expect(await judge(library(), description, vector)).toBe('ok');
  });

  test.each(ALL.filter(({ vector }) => vector.verdict === 'refused'))('rejects $title', async ({ vector, description }) => {
    expect(await judge(library(), description, vector)).toMatch(
      /^(?:signature_mismatch|malformed_|missing_|timestamp_|unsupported_)/,
    );
  });
});
