(** Every hyper-parameter of a convolution, and the head dimension.

    book/theorem.md, "Every hyper-parameter of a convolution" and "Head dimension";
    attnconv.layers.conv_as_attention.  Padding is in lemma_1_padded and theorem_1 too. *)

From mathcomp Require Import all_ssreflect all_algebra reals.
From AttnConv Require Import Attention Lemma1 Lemma2 Theorem1 Lemma3.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** * Stride, dilation and groups *)

Definition scale (d : shift) (p : pixel) : pixel := (d.1 * p.1, d.2 * p.2).

(** The query [q] of a strided, dilated, grouped convolution, whose kernel starts to slide at the
    pixel [start]; [W delta g] is the matrix of group [g]. *)
Definition strided_conv (R : ringType) (start : pixel) (stride dilation : shift) G Cin Cout Delta
    (W : shift -> 'I_G -> 'M[R]_(Cin, Cout)) (b : 'rV_(G * Cout)) (X : image R (G * Cin)) q :
    'rV[R]_(G * Cout) :=
  mxvec (\matrix_(g, o) \sum_(delta <- Delta) \sum_i
    X (start + scale stride q + scale dilation delta) 0 (mxvec_index g i) * W delta g i o) + b.

(** The block diagonal matrix. *)
Definition block_diagonal (R : ringType) G Cin Cout (W : 'I_G -> 'M[R]_(Cin, Cout)) :
    'M_(G * Cin, G * Cout) :=
  \matrix_(r, c) mxvec (\matrix_(g, i)
    mxvec (\matrix_(g', o) (if g == g' then W g i o else 0)) 0 c) 0 r.

Lemma mul_block_diagonal (R : comRingType) G Cin Cout (W : 'I_G -> 'M[R]_(Cin, Cout))
    (x : 'rV_(G * Cin)) g o :
  (x *m block_diagonal W) 0 (mxvec_index g o) = \sum_i x 0 (mxvec_index g i) * W g i o.
Proof.
rewrite mxE (reindex _ (curry_mxvec_bij _ _)) /=.
pose T g' i := x 0 (mxvec_index g' i) * (if g' == g then W g' i o else 0).
transitivity (\sum_g' \sum_i T g' i).
  by rewrite pair_bigA; apply: eq_bigr => -[g' i] _; rewrite !mxE !mxvecE !mxE mxvecE mxE.
rewrite (bigD1 g) //= [X in _ + X]big1 ?addr0 => [|g' /negPf gg']; rewrite /T.
  by apply: eq_bigr => i _; rewrite eqxx.
by rewrite gg' big1 // => i _; rewrite mulr0.
Qed.

(** A strided, dilated, grouped convolution is one with spread shifts and block diagonal matrices,
    at every [stride]-th query. *)
Definition unscale (d : shift) (delta : shift) : shift := ((delta.1 %/ d.1)%Z, (delta.2 %/ d.2)%Z).

Lemma strided_convE (R : comRingType) start stride dilation G Cin Cout Delta
    (W : shift -> 'I_G -> 'M[R]_(Cin, Cout)) b X q :
  dilation.1 != 0 -> dilation.2 != 0 ->
  strided_conv start stride dilation Delta W b X q =
  conv (map (scale dilation) Delta) (fun delta => block_diagonal (W (unscale dilation delta))) b X
    (start + scale stride q).
Proof.
move=> d1 d2; apply/rowP=> c; case/mxvec_indexP: c => g o; rewrite mxE mxvecE !mxE summxE big_map.
congr (_ + _); apply: eq_bigr => delta _.
by rewrite mul_block_diagonal /unscale /= !mulKz // -surjective_pairing.
Qed.

(** The first outputs of a convolution. *)
Lemma conv_columns (R : comRingType) Din m Dout (g : 'I_m -> 'I_Dout) Delta
    (W : shift -> 'M[R]_(Din, Dout)) (b : 'rV_Dout) X q o :
  conv Delta (fun delta => \matrix_(i, o) W delta i (g o)) (\row_o b 0 (g o)) X q 0 o =
  conv Delta W b X q 0 (g o).
Proof.
rewrite [LHS]mxE [RHS]mxE !summxE mxE; congr (_ + _); apply: eq_bigr => delta _.
by rewrite !mxE; apply: eq_bigr => i _; rewrite mxE.
Qed.

(** ** Theorem 1 for every hyper-parameter

    Let [3 <= D_p] and [0 < D_k].  For every stride, dilation (neither component 0), number of
    groups, kernel over any list of shifts, starting pixel, bound [B] and [eps > 0] there is a
    self-attention layer with one head per shift and the encoding of (9), whose first [min(D_h,
    groups * C_out)] outputs, at every [stride]-th query whose (spread) kernel lies in the image,
    are within [eps] of the strided, dilated, grouped convolution, on images of every size. *)
Theorem hyper_parameters (R : realType) start stride dilation G Cin Cout Dh Dk Dp Delta
    (W : shift -> 'I_G -> 'M[R]_(Cin, Cout)) b B eps :
  dilation.1 != 0 -> dilation.2 != 0 -> (3 <= Dp)%N -> (0 < Dk)%N -> 0 <= B -> 0 < eps ->
  exists2 L : layer R (size Delta) (G * Cin) Dh (G * Cout) Dk Dp, r L = @quadratic_r R Dp &
  forall p H Wd (X : image R (G * Cin)) q (o : 'I_(minn Dh (G * Cout))),
  let S := rectangle p H Wd in let c := widen_ord (geq_minr Dh (G * Cout)) o in
  (forall k i, k \in S -> `|X k 0 i| <= B) ->
  (forall delta, delta \in Delta -> start + scale stride q + scale dilation delta \in S) ->
  `|apply_layer L S X (start + scale stride q) 0 c
    - strided_conv start stride dilation Delta W b X q 0 c| < eps.
Proof.
move=> d1 d2 Dp3 Dk0 B0 eps0; pose g := widen_ord (geq_minr Dh (G * Cout)).
have g_inj : injective g by move=> i j /(congr1 val) /= ij; apply: val_inj.
have [L rL close] := theorem_1_any_kernel
  (fun delta => \matrix_(i, o) block_diagonal (W (unscale dilation delta)) i (g o))
  (\row_o b 0 (g o)) (size_map (scale dilation) Delta) (geq_minl _ _) g_inj Dp3 Dk0 B0 eps0.
exists L => // p H Wd X q o S c XB qS; rewrite strided_convE // -conv_columns; apply: close => //.
by move=> _ /mapP[delta dD ->]; apply: qS.
Qed.

(** Along one axis: how many queries torch computes on [n] padded pixels with a kernel of size [K],
    stride [s] and dilation [d]. *)
Definition torch_size (n K s d : nat) : nat := ((n - (d * K.-1).+1) %/ s).+1.

Lemma torch_axis (first : int) n K s d (x e : int) : (d * K.-1 < n)%N ->
  0 <= x < 0 + (torch_size n K s d)%:Z -> 0 <= e < 0 + K%:Z ->
  first <= first + s%:Z * x + d%:Z * e < first + n%:Z.
Proof.
rewrite !add0r => dK; case: x e => // x [] // e /andP[_ xs] /andP[_ eK].
rewrite -addrA ler_addl ltr_add2l -!PoszM -PoszD lez_nat ltz_nat /=.
have sx : (s * x <= n - (d * K.-1).+1)%N.
  rewrite ltz_nat in xs; rewrite mulnC; apply: leq_trans (leq_trunc_div _ s).
  by rewrite leq_mul2r -ltnS xs orbT.
have de : (d * e <= d * K.-1)%N.
  by rewrite ltz_nat in eK; case: K eK {sx xs dK} => // K; rewrite ltnS leq_mul2l orbC => ->.
by rewrite -(subnK dK) addnS ltnS leq_add.
Qed.

(** ** Theorem 1 with torch's numbers

    For every [K1 x K2] kernel, stride, dilation of at least 1, number of groups, and numbers of
    rows and columns of padding: on the padded image (padded with anything, [X]) the layer is within
    [eps] of the convolution at each of the queries that torch computes, in their order: floor((n -
    d (K - 1) - 1) / s) + 1 along an axis of [n] padded pixels. *)
Theorem hyper_parameters_torch (R : realType) K1 K2 (stride dilation : nat * nat)
    (top bottom left right : nat) G Cin Cout Dh Dk Dp
    (W : shift -> 'I_G -> 'M[R]_(Cin, Cout)) b B eps :
  let Delta := rectangle 0 K1 K2 in let start : pixel := (- top%:Z, - left%:Z) in
  let s : shift := (stride.1%:Z, stride.2%:Z) in let d : shift := (dilation.1%:Z, dilation.2%:Z) in
  (0 < dilation.1)%N -> (0 < dilation.2)%N -> (3 <= Dp)%N -> (0 < Dk)%N -> 0 <= B -> 0 < eps ->
  exists2 L : layer R (size Delta) (G * Cin) Dh (G * Cout) Dk Dp, r L = @quadratic_r R Dp &
  forall H Wd (X : image R (G * Cin)) q (o : 'I_(minn Dh (G * Cout))),
  let n1 := (top + H + bottom)%N in let n2 := (left + Wd + right)%N in
  let S := padded_grid top bottom left right H Wd in
  let c := widen_ord (geq_minr Dh (G * Cout)) o in
  (dilation.1 * K1.-1 < n1)%N -> (dilation.2 * K2.-1 < n2)%N ->
  (forall k i, k \in S -> `|X k 0 i| <= B) ->
  q \in grid (torch_size n1 K1 stride.1 dilation.1) (torch_size n2 K2 stride.2 dilation.2) ->
  `|apply_layer L S X (start + scale s q) 0 c - strided_conv start s d Delta W b X q 0 c| < eps.
Proof.
move=> Delta start s d d1 d2 Dp3 Dk0 B0 eps0; have nonzero n : (0 < n)%N -> n%:Z != 0 by case: n.
have [L rL close] := @hyper_parameters R start s d G Cin Cout Dh Dk Dp Delta W b B eps
  (nonzero _ d1) (nonzero _ d2) Dp3 Dk0 B0 eps0.
exists L => // H Wd X q o n1 n2 S c fit1 fit2 XB; rewrite mem_rectangle => /andP[q1 q2].
apply: close => // delta; rewrite !mem_rectangle => /andP[e1 e2].
by rewrite (torch_axis _ fit1 q1 e1) (torch_axis _ fit2 q2 e2).
Qed.

(** * The head dimension *)

Section HeadDimension.
Variables (F : fieldType) (N Din Dh Dout : nat).

(** ** The rank of W^(h)

    Each [W^(h)] has rank at most [D_h]. *)
Theorem rank_value_matrix (Wval : 'I_N -> 'M[F]_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) h :
  (\rank (value_matrix Wval Wout h) <= Dh)%N.
Proof. by rewrite (leq_trans (mxrankM_maxl _ _)) // rank_leq_col. Qed.

Variables (S : seq pixel) (Delta : seq shift) (f : 'I_N -> shift).
Hypotheses (S_uniq : uniq S) (Delta_uniq : uniq Delta) (f_Delta : perm_eq (codom f) Delta).
Let hard h (q k : pixel) : F := (k - q == f h)%:R.

Lemma f_in h : f h \in Delta. Proof. by rewrite -(perm_mem f_Delta) codom_f. Qed.

(** ** Any D_h of the outputs

    With hard heads, any [D_h] of the outputs can be any convolution with [D_h] output channels. *)
Theorem any_Dh_outputs (g : 'I_Dh -> 'I_Dout) (W : shift -> 'M_(Din, Dh)) b : injective g ->
  exists (Wval : 'I_N -> 'M_(Din, Dh)) (Wout : 'M_(N * Dh, Dout)) bout,
  forall X q o, interior S Delta q ->
  mhsa S hard Wval Wout bout X q 0 (g o) = conv Delta W b X q 0 o.
Proof.
move=> g_inj; exists (wide_values Dh (fun h => W (f h))), (wide_out F N Dh g), (b *m select F g).
by move=> X q o qS; apply: (@lemma_1_outputs _ _ _ _ _ _ _ Delta f _ W _ b g).
Qed.

(** ** Few input channels

    If [D_in <= D_h], hard heads can be every convolution, with any number of outputs. *)
Theorem few_inputs : (Din <= Dh)%N -> @expresses F N Din Dh Dout S Delta hard.
Proof.
move=> dims W b; exists (fun _ => pid_mx Din), (stack (fun h => pid_mx Din *m W (f h))), b.
move=> X q qS.
rewrite (@eq_13 _ _ _ _ _ _ f) // => [|h]; last exact/qS/f_in.
rewrite /conv (sum_heads _ f_Delta); congr (_ + _); apply: eq_bigr => h _.
rewrite /value_matrix out_block_stack (mulmxA (pid_mx _)) mul_pid_mx minnn (minn_idPr dims).
by rewrite pid_mx_1 mul1mx.
Qed.

(** Refuted: that hard heads of a dimension below both [D_in] and [D_out] suffice for every
    convolution, if there are a head and an interior query. *)
Theorem head_dimension_refuted (h : 'I_N) q :
  (Dh < minn Din Dout)%N -> interior S Delta q -> ~ @expresses F N Din Dh Dout S Delta hard.
Proof.
move=> dims qS expr; have f_inj : injective f.
  by apply/injectiveP; rewrite /injectiveb /dinjectiveb -/(codom f) (perm_uniq f_Delta).
have [Wval [Wout [bout same]]] := expr (fun e => (e == f h)%:R *: pid_mx (minn Din Dout)) 0.
have at_q X : \sum_h' X (q + f h') *m value_matrix Wval Wout h' + bout =
    X (q + f h) *m pid_mx (minn Din Dout).
  rewrite -(conv_single _ _ _ Delta_uniq (f_in h)) -same //.
  by rewrite (@eq_13 _ _ _ _ _ _ f) // => h'; apply/qS/f_in.
have bout0 : bout = 0.
  by have := at_q (fun _ => 0); rewrite mul0mx big1 ?add0r // => ? _; rewrite mul0mx.
suff value : value_matrix Wval Wout h = pid_mx (minn Din Dout).
  have := rank_value_matrix Wval Wout h; rewrite value rank_pid_mx ?geq_minl ?geq_minr //.
  by rewrite leqNgt dims.
apply/row_matrixP=> i; have := at_q (fun k => (k == q + f h)%:R *: delta_mx 0 i).
rewrite eqxx scale1r bout0 addr0 (bigD1 h) //= eqxx scale1r -!rowE big1 ?addr0 // => h' hh'.
by rewrite (inj_eq (addrI _)) (inj_eq f_inj) (negPf hh') scale0r mul0mx.
Qed.
End HeadDimension.

(** Refuted: that [W^(h)] is of rank [D_out - D_h], as the paper says where [D_h = D_out / N_h]:
    with three heads or more that is more than [D_h], which bounds the rank. *)
Theorem rank_printed_refuted (F : fieldType) N Din Dh (Wval : 'I_N -> 'M[F]_(Din, Dh))
    (Wout : 'M_(N * Dh, N * Dh)) h :
  (2 < N)%N -> (0 < Dh)%N -> \rank (value_matrix Wval Wout h) != (N * Dh - Dh)%N.
Proof.
move=> N2 Dh0; rewrite neq_ltn (leq_ltn_trans (rank_value_matrix _ _ _)) //.
by rewrite -[X in (_ - X)%N]mul1n -mulnBl -[X in (X < _)%N]mul1n ltn_mul2r Dh0 /= ltn_subRL.
Qed.
