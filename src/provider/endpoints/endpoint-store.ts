/** The durable store of endpoints, shared by all replicas. Part of the delivery queue, so that one file or one schema holds everything. */

/** An endpoint as the store keeps it. The store does not interpret `json`, which contains secrets. */
export interface StoredEndpoint {
  readonly id: string;
  /** 1 for a new one; increases by one with each change. */
  readonly version: number;
  readonly json: string;
}

export interface EndpointStore {
  list(): Promise<readonly StoredEndpoint[]>;
  /** Stores if the stored version is `endpoint.version - 1` (0: not stored); otherwise returns false and changes nothing. */
  put(endpoint: StoredEndpoint): Promise<boolean>;
  /** Returns false if it was not stored, or not in this version. */
  remove(id: string, version?: number): Promise<boolean>;
  /** Calls `listener` soon after another replica changed an endpoint. Returns how to stop. */
  onChange(listener: () => void): () => void;
}
