/** Checks that the verified content is an event envelope whose id is the signed one, if the route requires it. */
import { isUtf8 } from 'node:buffer';
import { isJson, isObject, readScalar } from '../../../core/json-scan.ts';
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
  if (!isUtf8(body) || !isJson(body) || !isObject(body, [])) return 'the body is not a JSON object in UTF-8';
  if (typeof readScalar(body, ['type']) !== 'string') return 'type is not a string';
  const found = readScalar(body, ['id']);
  if (typeof found !== 'string') return 'id is not a string';
  if (typeof readScalar(body, ['created']) !== 'number') return 'created is not a number';
  if (!isObject(body, ['data'])) return 'data is not an object';
  return found === id ? undefined : 'id differs from Webhook-Id';
}
