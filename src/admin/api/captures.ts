/** `GET /captures`, `GET /captures/{requestId}` and `DELETE /captures`: rejected deliveries of routes with `capture: failures`. */
import { type AdminResponse, toJson, toPlain } from '../response.ts';
import type { Endpoint } from '../router.ts';

/** Access to the captured deliveries. */
export interface CaptureSource {
  /** Newest first. */
  list(): readonly object[];
  /** Returns the delivery as an HTTP Archive in JSON. */
  find(requestId: string): string | undefined;
  /** Deletes all and returns how many there were. */
  clear(): number;
}

/** Builds the endpoints. */
export function createCapturesEndpoints(captures: CaptureSource): Endpoint[] {
  return [
    { path: '/captures', method: 'GET', isOpen: false, respond: () => toJson({ captures: captures.list() }) },
    { path: '/captures', method: 'DELETE', isOpen: false, respond: () => toJson({ deleted: captures.clear() }) },
    { path: '/captures/*', method: 'GET', isOpen: false, respond: ({ parameter }) => respondWith(captures.find(parameter)) },
  ];
}

function respondWith(har: string | undefined): AdminResponse {
  return har === undefined
    ? toPlain(404, 'there is no capture of this request; GET /captures lists the captures of routes with capture: failures')
    : { status: 200, contentType: 'application/json', text: har };
}
