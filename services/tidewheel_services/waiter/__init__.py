"""The waiter process: asks again and again for what tasks wait for by HTTP, and reports what came."""
