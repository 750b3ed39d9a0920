/** Checks that the verified content is an event envelope whose id is the signed one, if the route requires it. */
import { isJsonObject } from '../../../core/json-path.ts';
import { refuse } from '../../../core/refusal.ts';
import type { VerifiedEventGate } from './gate.ts';

/** Requires a JSON object {type, id, created, data} whose id equals the Webhook-Id. */
export function createEnvelopeGate(): VerifiedEventGate {
  return {
    check({ body, id }) {
      const problem = findEnvelopeProblem(body, id);
      return problem === undefined ? undefined : refuse('envelope_mismatch', 'envelope_mismatch', problem);
    },
  };
}

function findEnvelopeProblem(body: Buffer, id: string | undefined): string | undefined {
  const envelope = parseObject(body);
  if (envelope === undefined) return 'the body is not a JSON object in UTF-8';
  if (typeof envelope['type'] !== 'string') return 'type is not a string';
  if (typeof envelope['id'] !== 'string') return 'id is not a string';
  if (typeof envelope['created'] !== 'number') return 'created is not a number';
  if (!isJsonObject(envelope['data'])) return 'data is not an object';
  if (envelope['id'] !== id) return 'id differs from Webhook-Id';
  return undefined;
}

function parseObject(body: Buffer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body));
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
